use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use proptest::prelude::*;

use super::*;

/// A machine of texts.
#[derive(Default)]
struct Fake {
    files: RefCell<BTreeMap<String, String>>,
    health: Option<Health>,
    now: Cell<Duration>,
}

impl Fake {
    fn set(&self, path: &str, text: impl ToString) {
        let mut files = self.files.borrow_mut();
        files.insert(path.to_owned(), text.to_string());
    }

    /// `some` of io and cpu, in microseconds.
    fn pressure(&self, io: u64, cpu: u64) {
        for (name, total) in [("io", io), ("cpu", cpu)] {
            let text = format!(
                "some avg10=7.50 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
            );
            self.set(&format!("proc/pressure/{name}"), text);
        }
    }

    fn disk(&self, name: &str, requests: u64, took_ms: u64, busy_ms: u64) {
        let text = format!("{requests} 0 8 {took_ms} 0 0 0 0 0 {busy_ms} 0 0 0 0 0 0 0");
        self.set(&format!("sys/class/block/{name}/stat"), text);
    }

    fn pass(&self, seconds: u64) {
        self.now.set(self.now.get() + Duration::from_secs(seconds));
    }
}

impl Source for &Fake {
    fn text(&self, path: &str) -> io::Result<String> {
        let files = self.files.borrow();
        files
            .get(path)
            .cloned()
            .ok_or(io::ErrorKind::NotFound.into())
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let folder = format!("{path}/");
        let files = self.files.borrow();
        let below = files.keys().filter_map(|file| file.strip_prefix(&folder));
        let names: BTreeSet<&str> = below.filter_map(|file| file.split('/').next()).collect();
        match names.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(names.into_iter().map(str::to_owned).collect()),
        }
    }

    fn health(&self, _: &str) -> Result<Health, CannotTell> {
        self.health.ok_or(CannotTell::NotTold)
    }

    fn now(&self) -> Duration {
        self.now.get()
    }
}

fn value(readings: &[Reading], quantity: Quantity) -> Result<f64, CannotTell> {
    let reading = readings.iter().find(|one| one.quantity == quantity);
    reading.unwrap().value.clone()
}

fn look(looker: &mut Looker<&Fake>, working: bool) -> Vec<Reading> {
    looker.look(&["sda".to_owned()], working, &Limits::default())
}

#[test]
fn a_machine_that_tells_nothing_is_told_as_such() {
    let fake = Fake::default();
    let readings = look(&mut Looker::new(&fake), false);
    let quantities: Vec<Quantity> = readings.iter().map(|one| one.quantity).collect();
    for quantity in Quantity::ALL {
        assert!(quantities.contains(&quantity), "{quantity:?}");
    }
    for reading in &readings {
        assert!(reading.value.is_err() && !reading.is_over(), "{reading}");
        assert!(reading.to_string().contains("cannot tell"), "{reading}");
    }
    let mut gate = Gate::default();
    let limits = Limits::default();
    assert_eq!(gate.take(&readings, Duration::ZERO, &limits), Change::None);
    let cautious = Limits {
        cautious: true,
        ..limits
    };
    let change = gate.take(&readings, Duration::ZERO, &cautious);
    assert!(matches!(change, Change::Paused(why) if why.len() == readings.len()));
    // Without a drive all that is of a drive is unknown, too.
    let none = Looker::new(&fake).look(&[], false, &limits);
    assert_eq!(value(&none, Quantity::Wear), Err(CannotTell::NoDrive));
}

#[test]
fn pressure_is_that_of_others() {
    let fake = Fake::default();
    fake.pressure(0, 0);
    let mut looker = Looker::new(&fake);
    // The kernel's mean, as there was no earlier look.
    let first = look(&mut looker, false);
    assert_eq!(value(&first, Quantity::IoPressure), Ok(7.5));
    fake.pass(2);
    fake.pressure(500_000, 2_000_000);
    let quiet = look(&mut looker, false);
    assert_eq!(value(&quiet, Quantity::IoPressure), Ok(25.0));
    assert_eq!(value(&quiet, Quantity::CpuPressure), Ok(100.0));
    // While we work, nobody can tell it apart without a control group of our own.
    fake.pass(2);
    let working = look(&mut looker, true);
    assert_eq!(
        value(&working, Quantity::IoPressure),
        Err(CannotTell::OwnWork)
    );
    fake.set("proc/self/cgroup", "1:cpu:/x\n0::/indef.service\n");
    let group = "sys/fs/cgroup/indef.service";
    fake.set(&format!("{group}/cgroup.procs"), std::process::id());
    let own = |total: u64| {
        let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
        fake.set(&format!("{group}/io.pressure"), text);
    };
    own(100_000);
    fake.pass(2);
    look(&mut looker, true);
    fake.pass(2);
    own(1_100_000);
    fake.pressure(1_700_000, 2_000_000);
    // 1.2 s in all, 1 s of ours.
    let working = look(&mut looker, true);
    assert_eq!(value(&working, Quantity::IoPressure), Ok(10.0));
    // The same where the hierarchy is beside those of version 1.
    let unified = "sys/fs/cgroup/unified/indef.service";
    for file in ["cgroup.procs", "io.pressure"] {
        let text = fake.files.borrow_mut().remove(&format!("{group}/{file}"));
        fake.set(&format!("{unified}/{file}"), text.unwrap());
    }
    fake.pass(2);
    let working = look(&mut looker, true);
    assert_eq!(value(&working, Quantity::IoPressure), Ok(0.0));
    for file in ["cgroup.procs", "io.pressure"] {
        let text = fake.files.borrow_mut().remove(&format!("{unified}/{file}"));
        fake.set(&format!("{group}/{file}"), text.unwrap());
    }
    // A look right after work begins the quiet time, however soon it comes.
    fake.now.set(fake.now.get() + Duration::from_millis(100));
    fake.pressure(2_000_000, 2_000_000);
    own(1_100_000);
    let early = look(&mut looker, true);
    assert_eq!(
        value(&early, Quantity::IoPressure),
        Err(CannotTell::TooEarly)
    );
    fake.pass(1);
    let quiet = look(&mut looker, false);
    assert_eq!(value(&quiet, Quantity::IoPressure), Ok(0.0));
    // A group that others are in, too, is not ours.
    fake.set(&format!("{group}/cgroup.procs"), "1\n2\n");
    fake.pass(2);
    let shared = look(&mut looker, true);
    assert_eq!(
        value(&shared, Quantity::IoPressure),
        Err(CannotTell::OwnWork)
    );
    // In a container the root that is seen is our own; that of a machine has others in it.
    fake.set("proc/self/cgroup", "0::/\n");
    let root = "sys/fs/cgroup";
    fake.set(&format!("{root}/io.pressure"), "some avg10=0.00 total=0\n");
    for (members, is_own) in [
        (std::process::id().to_string(), true),
        (String::new(), false),
        ("1\n2\n".to_owned(), false),
    ] {
        fake.set(&format!("{root}/cgroup.procs"), members);
        fake.pass(2);
        look(&mut looker, true);
        fake.pass(2);
        let working = value(&look(&mut looker, true), Quantity::IoPressure);
        assert_eq!(working == Err(CannotTell::OwnWork), !is_own, "{working:?}");
    }
    fake.set("proc/pressure/io", "some\n");
    fake.pass(2);
    let odd = value(&look(&mut looker, false), Quantity::IoPressure);
    assert!(matches!(odd, Err(CannotTell::NotUnderstood(_))), "{odd:?}");
}

#[test]
fn the_load_of_a_disk_is_judged_over_quiet_times() {
    let fake = Fake::default();
    fake.disk("sda", 0, 0, 0);
    let mut looker = Looker::new(&fake);
    let early = look(&mut looker, false);
    assert_eq!(value(&early, Quantity::DiskBusy), Err(CannotTell::TooEarly));
    fake.pass(1);
    fake.disk("sda", 10, 300, 250);
    let quiet = look(&mut looker, false);
    assert_eq!(value(&quiet, Quantity::DiskBusy), Ok(25.0));
    assert_eq!(value(&quiet, Quantity::DiskLatency), Ok(30.0));
    // Our own work is no load of others, and the time with it is left out.
    fake.pass(1);
    fake.disk("sda", 1000, 9000, 1250);
    let working = look(&mut looker, true);
    assert_eq!(
        value(&working, Quantity::DiskBusy),
        Err(CannotTell::OwnWork)
    );
    fake.pass(1);
    let idle = look(&mut looker, false);
    assert_eq!(value(&idle, Quantity::DiskBusy), Ok(0.0));
    assert_eq!(value(&idle, Quantity::DiskLatency), Ok(0.0));
    // A disk that has work and finishes none.
    fake.pass(1);
    fake.disk("sda", 1000, 9000, 2250);
    let stuck = look(&mut looker, false);
    assert_eq!(value(&stuck, Quantity::DiskLatency), Ok(1000.0));
    // Of a device on two disks, the busier one.
    let stacked = || vec!["dm-0".to_owned()];
    fake.set("sys/class/block/dm-0/slaves/sda/x", "");
    fake.set("sys/class/block/dm-0/slaves/sdb/x", "");
    fake.disk("sdb", 0, 0, 0);
    looker.look(&stacked(), false, &Limits::default());
    fake.pass(1);
    fake.disk("sdb", 0, 0, 700);
    let readings = looker.look(&stacked(), false, &Limits::default());
    assert_eq!(value(&readings, Quantity::DiskBusy), Ok(70.0));
    assert_eq!(readings[3].drive.as_deref(), Some("dm-0"));
}

/// Neither an hour in which others were busy until just now nor one in which they have just begun tells of now.
#[test]
fn a_reading_is_of_now_after_a_long_time_without_a_look() {
    let fake = Fake::default();
    fake.pressure(0, 0);
    fake.disk("sda", 0, 0, 0);
    let mut looker = Looker::new(&fake);
    look(&mut looker, true);
    // Busy for all of an hour but its end: the kernel's mean of ten seconds is 7.5 %.
    fake.pass(3600);
    fake.pressure(3_600_000_000, 0);
    fake.disk("sda", 9000, 90_000, 3_600_000);
    let readings = look(&mut looker, false);
    assert_eq!(value(&readings, Quantity::IoPressure), Ok(7.5));
    assert_eq!(
        value(&readings, Quantity::DiskBusy),
        Err(CannotTell::TooEarly)
    );
    fake.pass(1);
    let readings = look(&mut looker, false);
    assert_eq!(value(&readings, Quantity::IoPressure), Ok(0.0));
    assert_eq!(value(&readings, Quantity::DiskBusy), Ok(0.0));
    // Idle for an hour, and busy since a second.
    fake.pass(3600);
    fake.disk("sda", 9000, 90_000, 3_600_900);
    look(&mut looker, false);
    fake.pass(1);
    fake.pressure(3_600_900_000, 0);
    fake.disk("sda", 9900, 90_900, 3_601_800);
    let readings = look(&mut looker, false);
    assert_eq!(value(&readings, Quantity::IoPressure), Ok(90.0));
    assert_eq!(value(&readings, Quantity::DiskBusy), Ok(90.0));
}

#[test]
fn a_machine_without_a_battery_is_on_mains() {
    let fake = Fake::default();
    let on_battery = || power::on_battery(&&fake);
    let supply = |name: &str, file: &str, text: &str| {
        fake.set(&format!("sys/class/power_supply/{name}/{file}"), text);
    };
    assert!(matches!(on_battery(), Err(CannotTell::NoFile(_))));
    supply("mouse", "type", "Battery\n");
    supply("mouse", "scope", "Device\n");
    supply("mouse", "status", "Discharging\n");
    assert_eq!(on_battery(), Ok(0.0));
    supply("BAT0", "type", "Battery\n");
    supply("BAT0", "status", "Discharging\n");
    assert_eq!(on_battery(), Ok(1.0));
    // Plugged in, and still discharging: a weak adapter.
    supply("AC", "type", "Mains\n");
    supply("AC", "online", "1\n");
    assert_eq!(on_battery(), Ok(0.0));
    supply("AC", "online", "0\n");
    assert_eq!(on_battery(), Ok(1.0));
    let readings = look(&mut Looker::new(&fake), false);
    let battery = readings
        .iter()
        .find(|one| one.quantity == Quantity::Battery);
    assert!(battery.unwrap().is_over());
    let allowed = Limits {
        on_battery: true,
        ..Limits::default()
    };
    let readings = Looker::new(&fake).look(&[], false, &allowed);
    assert!(readings.iter().all(|reading| !reading.is_over()));
}

#[test]
fn temperature_and_wear_come_from_where_there_are_any() {
    let mut fake = Fake::default();
    fake.set(
        "sys/class/block/sda/device/hwmon/hwmon3/temp1_input",
        "66500\n",
    );
    let readings = look(&mut Looker::new(&fake), false);
    assert_eq!(value(&readings, Quantity::Temperature), Ok(66.5));
    assert_eq!(value(&readings, Quantity::Wear), Err(CannotTell::NotTold));
    let healthy = Health {
        celsius: Some(40.0),
        used_pct: 3.0,
        critical: 0,
    };
    fake.health = Some(healthy);
    let mut looker = Looker::new(&fake);
    let readings = look(&mut looker, false);
    assert_eq!(value(&readings, Quantity::Temperature), Ok(40.0));
    assert_eq!(value(&readings, Quantity::Wear), Ok(3.0));
    // A drive that says itself that it fails is worn, whatever it counts; that it is warm is no wear.
    for (critical, wear) in [(0b100, 100.0), (0b1000, 100.0), (0b1, 100.0), (0b10, 3.0)] {
        let sick = Fake {
            health: Some(Health {
                critical,
                ..healthy
            }),
            ..Fake::default()
        };
        let readings = look(&mut Looker::new(&sick), false);
        assert_eq!(value(&readings, Quantity::Wear), Ok(wear), "{critical:b}");
    }
}

fn busy(value: f64) -> Vec<Reading> {
    vec![Reading {
        quantity: Quantity::DiskBusy,
        drive: None,
        value: Ok(value),
        limit: 40.0,
    }]
}

#[test]
fn a_gate_closes_at_once_and_opens_after_a_calm_time() {
    let limits = Limits::default();
    let mut gate = Gate::default();
    let mut at = |seconds, value| gate.take(&busy(value), Duration::from_secs(seconds), &limits);
    assert_eq!(at(0, 39.9), Change::None);
    assert_eq!(at(10, 40.0), Change::Paused(busy(40.0)));
    assert_eq!(at(20, 90.0), Change::None);
    // Below the limit, and not calm.
    assert_eq!(at(30, 39.0), Change::None);
    assert_eq!(at(40, 28.0), Change::None);
    assert_eq!(at(60, 28.0), Change::None);
    // The calm time begins anew.
    assert_eq!(at(65, 29.0), Change::None);
    assert_eq!(at(70, 0.0), Change::None);
    assert_eq!(at(99, 0.0), Change::None);
    assert_eq!(at(100, 0.0), Change::Resumed);
    assert_eq!(at(101, 30.0), Change::None);
    assert!(gate.is_open());
}

#[test]
fn what_closed_a_gate_and_is_not_known_any_more_keeps_it_closed() {
    let limits = Limits::default();
    let mut gate = Gate::default();
    gate.take(&busy(50.0), Duration::ZERO, &limits);
    let mut unknown = busy(0.0);
    unknown[0].value = Err(CannotTell::NoDrive);
    for second in 1..100 {
        let change = gate.take(&unknown, Duration::from_secs(second), &limits);
        assert_eq!((change, gate.is_open()), (Change::None, false));
    }
    assert_eq!(gate.why(), busy(50.0));
}

proptest! {
    /// However readings jump, a gate does not open sooner than a calm time after a reading over its limit.
    #[test]
    fn a_gate_does_not_flap(values in prop::collection::vec((1u64..20, 0.0..100.0f64), 1..200)) {
        let limits = Limits::default();
        let (mut gate, mut now, mut over) = (Gate::default(), 0, None);
        for (step, value) in values {
            now += step;
            let change = gate.take(&busy(value), Duration::from_secs(now), &limits);
            if value >= 40.0 {
                over = Some(now);
                prop_assert!(!gate.is_open());
            }
            if change == Change::Resumed {
                prop_assert!(now - over.unwrap() >= limits.calm.as_secs());
            }
        }
    }

    /// Whatever the kernel's files hold, nothing panics and no value is out of bounds.
    #[test]
    fn any_text_is_read(text in "\\PC{0,80}", numbers in prop::collection::vec(any::<u64>(), 0..20)) {
        let fake = Fake::default();
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let mut looker = Looker::new(&fake);
        for stat in [numbers.join(" "), text.clone(), numbers.join(" ")] {
            fake.set("proc/pressure/io", &text);
            fake.set("proc/pressure/cpu", format!("some avg10={text} total={}", numbers.concat()));
            fake.set("sys/class/block/sda/stat", stat);
            fake.set("sys/class/block/sda/device/hwmon0/temp1_input", &text);
            fake.pass(1);
            for reading in look(&mut looker, false) {
                prop_assert!(reading.value.is_err() || reading.value.unwrap().is_finite());
            }
        }
    }
}
