/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which file: its identity, the short name that ranges carry, and whether it passes --path and
 * --device. All of it is looked up once for each file.
 */
#ifndef INDEF_FILE_H
#define INDEF_FILE_H

#include "maps.h"

static __always_inline bool is_regular(struct inode *inode)
{
	return (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFREG;
}

static __always_inline struct btrfs_root *btrfs_root_of(struct inode *inode)
{
	struct btrfs_inode *btrfs;

	btrfs = (void *)inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode);
	return BPF_CORE_READ(btrfs, root);
}

static __always_inline void key_of(struct inode *inode, struct file_key *key)
{
	struct super_block *sb = BPF_CORE_READ(inode, i_sb);

	key->inode = BPF_CORE_READ(inode, i_ino);
	key->generation = BPF_CORE_READ(inode, i_generation);
	key->subvolume = 0;
	key->dev = BPF_CORE_READ(sb, s_dev);
	/* Where Btrfs is a module that is not loaded, no file is on it. */
	if (bpf_core_type_exists(struct btrfs_inode) &&
	    BPF_CORE_READ(sb, s_magic) == BTRFS_SUPER_MAGIC) {
		struct btrfs_root *root = btrfs_root_of(inode);

		key->subvolume = BPF_CORE_READ(root, root_key.objectid);
		key->dev = BPF_CORE_READ(root, anon_dev);
	}
}

/* How deep below a --path a file may lie. */
#define MAX_DEPTH 64
/* Names (hard links) of a file that are looked at for that. */
#define MAX_NAMES 16

/* The trees and files that --path names. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ROOTS);
	__type(key, struct root);
	__type(value, __u32);
} roots SEC(".maps");

static __always_inline bool is_root(struct inode *inode)
{
	struct root root = {};
	struct file_key key;

	key_of(inode, &key);
	root.inode = key.inode;
	root.dev = key.dev;
	return bpf_map_lookup_elem(&roots, &root);
}

/* Whether the name at this address, a dentry, lies in a tree of --path. */
__noinline int is_below_root(__u64 address)
{
	struct dentry *dentry = (void *)address, *parent;

	for (int i = 0; i < MAX_DEPTH; i++) {
		parent = BPF_CORE_READ(dentry, d_parent);
		if (!parent || parent == dentry)
			return 0;
		if (is_root(BPF_CORE_READ(parent, d_inode)))
			return 1;
		dentry = parent;
	}
	return 0;
}

/* The place in a dentry of the link that is in its inode's list of names. */
static __always_inline __u64 alias_offset(void)
{
	if (bpf_core_field_exists(struct dentry___unnamed, d_alias))
		return bpf_core_field_offset(struct dentry___unnamed, d_alias);
	return bpf_core_field_offset(struct dentry, d_u);
}

/*
 * Whether a file lies in a tree of --path: by any of its names that are in the kernel's memory.
 * (Global functions, here and elsewhere, are verified once, not again for every call.)
 */
__noinline int in_roots(__u64 address)
{
	struct inode *inode = (void *)address;
	struct hlist_node *alias;

	if (is_root(inode))
		return 1;
	alias = BPF_CORE_READ(inode, i_dentry.first);
	for (int i = 0; i < MAX_NAMES && alias; i++) {
		if (is_below_root((__u64)alias - alias_offset()))
			return 1;
		alias = BPF_CORE_READ(alias, next);
	}
	return 0;
}

static __always_inline bool on_devices(__u32 sb_dev, __u32 bdev)
{
	for (int i = 0; i < MAX_DEVICES; i++) {
		if (i >= config.devices_len)
			return false;
		if (config.devices[i] == sb_dev || config.devices[i] == bdev)
			return true;
	}
	return false;
}

/* Whether a file passes --device. */
static __always_inline bool on_wanted_device(struct inode *inode)
{
	struct super_block *sb;

	if (!config.devices_len)
		return true;
	sb = BPF_CORE_READ(inode, i_sb);
	return on_devices(BPF_CORE_READ(sb, s_dev), BPF_CORE_READ(sb, s_bdev, bd_dev));
}

/*
 * Note the folder of one of a file's names: user space finds the name there when the kernel no
 * longer has it in memory.
 */
static __always_inline void set_parent(struct file_entry *entry, struct inode *inode)
{
	struct hlist_node *alias = BPF_CORE_READ(inode, i_dentry.first);
	struct dentry *dentry;
	struct inode *parent;

	if (!alias)
		return;
	dentry = (void *)((__u64)alias - alias_offset());
	parent = BPF_CORE_READ(dentry, d_parent, d_inode);
	/* An open by handle makes a name without a folder. */
	if (!parent || parent == inode)
		return;
	entry->parent_inode = BPF_CORE_READ(parent, i_ino);
	entry->parent_generation = BPF_CORE_READ(parent, i_generation);
}

/*
 * The short name of a file, or 0 if it does not count. It is also 0 when the kernel finds no room
 * for the file: then one access is counted as lost.
 */
__noinline __u32 intern(__u64 address)
{
	struct inode *inode = (void *)address;
	struct file_entry entry = {}, *have;
	struct super_block *sb;
	struct file_event *event;
	struct file_key key;

	if (!inode)
		return 0;
	key_of(inode, &key);
	have = bpf_map_lookup_elem(&files, &key);
	if (have)
		return have->wanted ? have->id : 0;

	sb = BPF_CORE_READ(inode, i_sb);
	entry.sb_dev = BPF_CORE_READ(sb, s_dev);
	entry.magic = BPF_CORE_READ(sb, s_magic);
	entry.pid = current_process();
	bpf_core_read(entry.uuid, sizeof(entry.uuid), &sb->s_uuid);
	/* Files that lie on no device have no fragments. */
	entry.wanted = BPF_CORE_READ(sb, s_bdev) || entry.magic == BTRFS_SUPER_MAGIC;
	/* Other trees of Btrfs have inodes, too: the old free space cache, a balance under way. */
	if (entry.magic == BTRFS_SUPER_MAGIC && key.subvolume != BTRFS_FS_TREE &&
	    (key.subvolume < BTRFS_FIRST_FREE || key.subvolume > BTRFS_LAST_FREE))
		entry.wanted = 0;
	if (entry.wanted)
		entry.wanted = on_wanted_device(inode);
	if (entry.wanted && config.by_root)
		entry.wanted = in_roots(address);
	if (entry.wanted)
		set_parent(&entry, inode);
	entry.id = __sync_fetch_and_add(&state.next_file, 1) + 1;
	if (bpf_map_update_elem(&files, &key, &entry, BPF_NOEXIST)) {
		have = bpf_map_lookup_elem(&files, &key);
		if (have)
			return have->wanted ? have->id : 0;
		lost(&state.lost_files);
		return 0;
	}
	if (!entry.wanted)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		lost(&state.untold_files);
		return entry.id;
	}
	event->kind = EVENT_FILE;
	event->reserved = 0;
	event->key = key;
	event->entry = entry;
	bpf_ringbuf_submit(event, 0);
	return entry.id;
}

#endif
