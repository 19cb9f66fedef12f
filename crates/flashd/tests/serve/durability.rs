//! The data that outlives a loss of power.

use nvme_initiator::command;
use nvme_wire::{feature::Feature, io::BlockRange, vendor::DefragmentMove};

use crate::target::{BLOCK, CONVENTIONAL, Fixture, pattern};

/// A host that has disabled the write cache sends no flush: all that has ended is durable.
#[test]
fn without_the_write_cache_each_change_is_durable() {
    let fixture = Fixture::new();
    let (mut host, mut queue) = fixture.queue();
    let disable = command::set_features(Feature::VolatileWriteCache.raw(), 0);
    host.run("Set Features", disable, Vec::new(), 0).unwrap();
    let mut run = |what, (command, data)| {
        queue.run(command, data, 0).unwrap().ok(what).unwrap();
    };
    let data = pattern(0, 4, 1);
    run("Write", (command::write(CONVENTIONAL, 0, 4), data.clone()));
    let moves = [DefragmentMove::new(1, 9)];
    run(
        "In_Device_Defragment",
        command::defragment(CONVENTIONAL, &moves),
    );
    let range = BlockRange { start: 2, count: 1 };
    run(
        "Dataset Management",
        command::deallocate(CONVENTIONAL, &[range]),
    );
    let zeroes = command::write_zeroes(CONVENTIONAL, 3, 1);
    run("Write Zeroes", (zeroes, Vec::new()));
    fixture.device.power_cut();
    let block = |at: u64| {
        let mut bytes = vec![0; BLOCK];
        let offset = at * BLOCK as u64;
        let index = CONVENTIONAL as usize - 1;
        fixture.device.read_into(index, offset, &mut bytes).unwrap();
        bytes
    };
    let written = |at: usize| &data[at * BLOCK..][..BLOCK];
    assert!(block(0) == written(0), "written");
    assert!(block(9) == written(1), "moved");
    assert!(block(2) == [0; BLOCK], "deallocated");
    assert!(block(3) == [0; BLOCK], "zeroed");
}
