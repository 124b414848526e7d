/* Writes what one rank reports about itself during a run, for `fsdp dashboard`: its state, how it
 * spends the time of its steps, its memory by purpose, and the collectives of its units.
 *
 * Note [Rank files]. Each rank appends JSON lines to its own file, <metrics>.ranks/<rank>.jsonl, so
 * no rank waits for another one. A line about steps has the sums of all steps since the previous
 * line about steps. Such a line is written at most once per second, even if steps are shorter. A
 * change of the state is written at once. The kinds of lines are
 *
 *     {"kind": "start", "rank": 0, "time": 1790000000.1, "step": 0, "world_size": 2, "pid": 7,
 *      "host": "a", "device": "cpu", "threads": 4}
 *     {"kind": "rank", "time": ..., "state": "training", "step": 12, "steps": 3, "seconds": 1.1,
 *      "wait_s": 0.2, "data_s": 0.01, "cpu_s": 0.7, "queued_s": 0.1,
 *      "memory": {"allocated": 1000, "reserved": 4096, "param": 900}}
 *     {"kind": "units", "time": ..., "step": 12, "units": [{"name": "encoder.block.0",
 *      "gathers": 24, "gather_bytes": 9000, "reduces": 12, "reduce_bytes": 9000,
 *      "all_reduces": 0, "all_reduce_bytes": 0, "wait_s": 0.1}]}
 *     {"kind": "end", "time": ..., "state": "ended" or "failed", "step": 40, "message": ...}
 *
 * "time" is in seconds since 1970. "seconds", "wait_s" and "data_s" are sums over "steps" steps:
 * their duration, the time in which the rank waited for other ranks, and the time in which it
 * waited for batches. "cpu_s" and "queued_s" are times of the training thread since the previous
 * line: the time in which the thread ran, and the time in which it was ready to run, but its core
 * was busy with something else. Both are 0 if the system does not report them. The memory
 * statistics are read when a unit gathers, frees or reduces. "memory" has the statistics of the
 * moment at which most bytes were allocated, so the numbers of the purposes add up to "allocated".
 * The numbers in "units" are totals since "start"; "wait_s" of a unit is the time in which the rank
 * waited in the collectives of this unit. Waits in other collectives, such as the norm of the
 * gradients, barriers and saves, are in no unit. */
#pragma once
#include <fsdp/nn.h>
#include <fsdp/tensor.h>

#include "src/fsdp/observer.h"

typedef struct fsdp_monitor fsdp_monitor;

enum {
    FSDP_MONITOR_GROUPS = 3 /* the world, and the groups of the two dimensions of a device mesh */
};

typedef struct fsdp_monitor_options {
    const char *folder; /* the folder for the rank files; it must exist */
    /* true: the run continues an earlier run, so the existing lines of the file are kept */
    bool append;
    int64_t step; /* number of steps that earlier runs have completed */
    int threads;
    /* The groups in which this rank waits; groups[0] is the world. Items that are NULL, or equal to
     * an earlier item, are ignored. Borrowed. */
    const fsdp_group *groups[FSDP_MONITOR_GROUPS];
    const fsdp_device *device; /* borrowed */
    fsdp_module *module;       /* borrowed; its units report to the monitor until it is closed */
} fsdp_monitor_options;

/* Open the file of this rank in the folder, and write the line "start". Not collective. */
FSDP_MUST_CHECK fsdp_status fsdp_monitor_open(const fsdp_monitor_options *options,
                                              fsdp_monitor **monitor);
/* Set the state of the rank, such as "training". If the state has changed, write a line. `state`
 * must be a static string. This function and all functions below do nothing if `monitor` is NULL.
 * If a line cannot be written, the monitor writes no more lines, and the run continues: see
 * fsdp_monitor_failure(). */
void fsdp_monitor_at(fsdp_monitor *monitor, const char *state);
/* Begin a step. */
void fsdp_monitor_step_begin(fsdp_monitor *monitor);
/* End the step that fsdp_monitor_step_begin() has begun. `step` is its number in the run, counted
 * from 1. The step took `seconds`, including `data_s` in which the rank waited for its batches. */
void fsdp_monitor_step_end(fsdp_monitor *monitor, int64_t step, double seconds, double data_s);
/* If an error has stopped the monitor, return the error message on the first call after that.
 * Otherwise return NULL. */
const char *fsdp_monitor_failure(fsdp_monitor *monitor);
/* Write the line "end", and free the monitor. From then on, the units no longer report events to
 * it. `message` is the error of the run, or NULL if the run succeeded. */
void fsdp_monitor_close(fsdp_monitor *monitor, const char *message);
