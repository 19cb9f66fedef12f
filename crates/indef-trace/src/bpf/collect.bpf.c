/* SPDX-License-Identifier: GPL-2.0-only */
/* All programs in one object: user space loads those of the layer that it wants. */
#include "kernel.h"
#include "fs.h"
#include "syscall.h"

char LICENSE[] SEC("license") = "GPL";

/* So that the types of the contract reach the generated code. */
struct file_event file_event_type;
struct range_event range_event_type;
struct counted_event counted_event_type;
