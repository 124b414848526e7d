/* What one rank reports about itself while a run goes on, for `fsdp dashboard`: its state, where
 * the time of its steps goes, its memory by purpose, and the collectives of its units.
 *
 * Note [Rank files]. Each rank appends JSON lines to a file of its own,
 * <metrics>.ranks/<rank>.jsonl, so no rank waits for another one. A line comes at most once in
 * LINE_S seconds, however short the steps are, and adds up the steps since the line before it. A
 * change of the state is written at once. The kinds of lines are
 *
 *     {"kind": "start", "rank": 0, "time": 1790000000.1, "step": 0, "world_size": 2, "pid": 7,
 *      "host": "a", "device": "cpu", "threads": 4}
 *     {"kind": "rank", "time": ..., "state": "training", "step": 12, "steps": 3, "seconds": 1.1,
 *      "wait_s": 0.2, "data_s": 0.01, "queued_s": 0.1, "memory": {"allocated": 1000, "reserved":
 * 4096, "param": 900}}
 *     {"kind": "units", "time": ..., "step": 12, "units": [{"name": "encoder.block.0",
 *      "gathers": 24, "gather_bytes": 9000, "reduces": 12, "reduce_bytes": 9000,
 *      "all_reduces": 0, "all_reduce_bytes": 0, "wait_s": 0.1}]}
 *     {"kind": "end", "time": ..., "state": "ended" or "failed", "step": 40, "message": ...}
 *
 * "time" is in seconds since 1970. "seconds", "wait_s" and "data_s" are sums over "steps" steps.
 * "queued_s" is for how long, since the line before, the first thread of the rank could have run
 * but its core was busy with something else. "memory" is what tensors had when they had most, among
 * the moments at which a unit gathered, freed or reduced, so the purposes add up to "allocated".
 * The numbers of "units" are totals since "start". */
#pragma once
#include <fsdp/nn.h>
#include <fsdp/tensor.h>

#include "src/fsdp/observer.h"

typedef struct fsdp_monitor fsdp_monitor;

enum {
    FSDP_MONITOR_GROUPS = 3 /* the world, and the groups of both dimensions of a mesh */
};

typedef struct fsdp_monitor_options {
    const char *folder; /* exists already */
    bool append;        /* the run continues an earlier one: keep the lines of the file */
    int64_t step;       /* number of steps that are done already */
    int threads;
    /* The groups in which this rank waits. Those that are NULL, or equal to an earlier one, are not
     * counted. groups[0] is the world. All are borrowed. */
    const fsdp_group *groups[FSDP_MONITOR_GROUPS];
    const fsdp_device *device; /* borrowed */
    fsdp_module *module;       /* borrowed; its units report to the monitor until it is closed */
} fsdp_monitor_options;

/* Open the file of this rank in the folder, and write the line "start". Not collective. */
FSDP_MUST_CHECK fsdp_status fsdp_monitor_open(const fsdp_monitor_options *options,
                                              fsdp_monitor **monitor);
/* Set what the rank does now, and write a line if that has changed. `state` is a static string. The
 * next functions accept a NULL monitor, too. If a line cannot be written, the monitor writes no
 * more, and the run goes on: see fsdp_monitor_failure(). */
void fsdp_monitor_at(fsdp_monitor *monitor, const char *state);
/* Begin a step. */
void fsdp_monitor_step_begin(fsdp_monitor *monitor);
/* End the step that was begun, the `step`-th of the run. It took `seconds`. For `data_s` of them,
 * the rank waited for its batches. */
void fsdp_monitor_step_end(fsdp_monitor *monitor, int64_t step, double seconds, double data_s);
/* Return the reason why the monitor has stopped to write, once; afterwards, and if there is none,
 * NULL. */
const char *fsdp_monitor_failure(fsdp_monitor *monitor);
/* Write the line "end" and free the monitor. `message` is the error of the run; NULL if it has
 * succeeded. Afterwards, units report nothing. Accepts NULL. */
void fsdp_monitor_close(fsdp_monitor *monitor, const char *message);
