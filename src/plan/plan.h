/* Computes the memory and the collectives of a run of `fsdp train` before the run. Optimizer steps
 * of the real program (model, units with their hooks, tape, clipping, optimizer, allocator) run on
 * the meta device, over a group without peers (src/comm/plan_group.h). They are repeated until a
 * step needs no more memory than the steps before it, which takes three steps in most cases and
 * five at most. Figures are not estimated, but counted from the requests of these steps on rank 0,
 * which has the most rows of parameters. Batches are full: they have --batch-size rows of the
 * greatest length. The plan describes the last step, in which the prefetch order is known and the
 * optimizer state exists.
 *
 * A plan may also be for more than one host (local_world_size < world_size), although no transport
 * of this build supports that. The plan then assumes that each host has only the master weights and
 * the gradient buffers of its own ranks. It also assumes that ranks of a host unshard into shared
 * buffers, even if parameters are float32. Buffers for an exchange between hosts are not
 * counted. */
#pragma once
#include <stdio.h>

#include <fsdp/tensor.h>

#include "src/train/trainer.h"
#include "src/train_config/config.h"

/* Bytes that one rank requests, by purpose. Memory that the ranks of a host share is divided
 * equally among them. */
typedef struct fsdp_plan_memory {
    int64_t tag[FSDP_TAG_COUNT], total;
} fsdp_plan_memory;

typedef enum fsdp_plan_phase {
    FSDP_PLAN_INIT,
    FSDP_PLAN_FORWARD,
    FSDP_PLAN_RECOMPUTATION, /* forward of a checkpointed region, run again within backward */
    FSDP_PLAN_BACKWARD,
    FSDP_PLAN_OPTIMIZER,
    FSDP_PLAN_SAVE,
    FSDP_PLAN_PHASES
} fsdp_plan_phase;
const char *fsdp_plan_phase_name(fsdp_plan_phase phase); /* "forward"; static */

/* What the program is computing at a point in time. */
typedef struct fsdp_plan_moment {
    fsdp_plan_phase phase;
    int unit; /* index of the unit; -1: outside of all units */
} fsdp_plan_moment;

typedef struct fsdp_plan_unit {
    char *name; /* path of the unit's first module; "" for the root */
    char *class_name;
    int modules;                /* number of modules in this unit */
    int64_t numel, local_numel; /* elements of the unit's parameters, on all ranks together and on
                                   rank 0 */
    /* Collectives per step. The bytes are those of whole collectives, as FSDP2 would run them. */
    uint64_t all_gathers, all_gather_bytes, reduce_scatters, reduce_scatter_bytes;
    uint64_t all_reduces, all_reduce_bytes; /* sums over the replicas */
} fsdp_plan_unit;

typedef enum fsdp_plan_event_kind {
    FSDP_PLAN_BEGIN,   /* the unit starts computing */
    FSDP_PLAN_END,     /* the unit has finished computing */
    FSDP_PLAN_GATHER,  /* the unit's all-gather begins */
    FSDP_PLAN_UNSHARD, /* the unit's all-gather is complete */
    FSDP_PLAN_RESHARD,
    FSDP_PLAN_POST,       /* the unit's gradients are posted */
    FSDP_PLAN_REDUCE,     /* the unit's gradients are summed over the ranks */
    FSDP_PLAN_ALL_REDUCE, /* the unit's gradients are summed over the replicas */
} fsdp_plan_event_kind;

typedef struct fsdp_plan_event {
    fsdp_plan_event_kind kind;
    int unit;
    fsdp_plan_phase phase; /* what is computed at the time of the event */
    int64_t allocated;     /* bytes on this rank at the time of the event */
} fsdp_plan_event;

typedef struct fsdp_plan {
    char *class_name; /* class of the model */
    char *tree;       /* the modules, as --print-model prints them; NULL: not requested */
    fsdp_task task;
    int64_t numel;
    int world_size, local_world_size;
    int64_t rows, source_length, target_length; /* size of a batch; target_length is 0 unless the
                                                   task is seq2seq */
    bool length_is_assumed; /* neither --max-seq-length nor the model bounds source_length */
    bool takes_ids_whole;   /* seq2seq: rows of token ids whose source or target length no option
                               limits */
    int micro_steps;
    fsdp_plan_unit *units;
    size_t n_units, cap_units;
    fsdp_plan_memory init, forward, backward, step; /* bytes allocated after initialization, after
                                                       forward, after backward and after the step */
    fsdp_plan_memory peak, most; /* peak: bytes of each tag when the total peaks; most: the peak of
                                    each tag */
    fsdp_plan_memory most_in[FSDP_PLAN_PHASES]; /* the peak of each tag in each phase */
    fsdp_plan_moment peak_at;
    int64_t reserved; /* peak of the bytes that the allocator reserves for tensors, including unused
                         space between them */
    int64_t staging;  /* peak of the copies for --async-save; not part of `reserved` */
    uint64_t small_collectives, small_bytes; /* per step: collectives of counts and losses; those of
                                                norms are not included */
    fsdp_plan_event *events;                 /* events of the last micro-step, in order */
    size_t n_events, cap_events;
} fsdp_plan;

/* Make a plan.
 *
 * @param config as for fsdp_train_run(), but no rows of data are read and no files are written
 * @param local_world_size must divide world_size
 * @return FSDP_ERR_INVALID for impossible numbers of ranks or lengths of rows, and the errors of
 * opening the model */
FSDP_MUST_CHECK fsdp_status fsdp_plan_create(const fsdp_train_config *config, int world_size,
                                             int local_world_size, fsdp_plan **plan);
void fsdp_plan_destroy(fsdp_plan *plan); /* accepts NULL */

/* Return the bytes that all ranks of one host need. Each rank needs `reserved`, `staging` and
 * FSDP_BESIDE_TENSORS_BYTES. */
int64_t fsdp_plan_host_bytes(const fsdp_plan *plan);

/* Print tables for people; if `schedule` is true, also print the order of collectives
 * (plan_report.c). */
FSDP_MUST_CHECK fsdp_status fsdp_plan_print(const fsdp_plan *plan, FILE *out, bool schedule);
/* Print the plan as one JSON object. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_print_json(const fsdp_plan *plan, FILE *out, bool schedule);
/* Return the unit's path, "root" for the root, or "" if `unit` is negative. The text is static or
 * belongs to the plan. */
const char *fsdp_plan_unit_name(const fsdp_plan *plan, int unit);
