/* What a run of `fsdp train` takes, found out before it: optimizer steps of the real program
 * (model, units with their hooks, tape, clipping, optimizer, allocator) walked on the meta device
 * over a group without peers (src/comm/plan_group.h), until one holds no more than those before it:
 * most often three, at most five. Nothing is estimated: each figure is what those steps ask for, of
 * rank 0, whose rows are the most. Batches are full: --batch-size rows of the greatest length. The
 * last step is the one described: prefetch knows the order then, and optimizer state is there.
 *
 * Beyond one host (local_world_size < world_size), which no transport of this build reaches: each
 * host keeps the masters of its own ranks alone, unshards into buffers that its ranks share, with
 * float32 too, and holds the gradient slots of its own ranks. What an exchange between hosts would
 * buffer is not counted. */
#pragma once
#include <stdio.h>

#include <fsdp/tensor.h>

#include "src/train/config.h"
#include "src/train/trainer.h"

/* Requested bytes of one rank by purpose; of what the ranks of a host share, its part. */
typedef struct fsdp_plan_memory {
    int64_t tag[FSDP_TAG_COUNT], total;
} fsdp_plan_memory;

typedef enum fsdp_plan_phase {
    FSDP_PLAN_INIT,
    FSDP_PLAN_FORWARD,
    FSDP_PLAN_RECOMPUTATION, /* a checkpointed forward, within backward */
    FSDP_PLAN_BACKWARD,
    FSDP_PLAN_OPTIMIZER,
    FSDP_PLAN_SAVE,
    FSDP_PLAN_PHASES
} fsdp_plan_phase;
const char *fsdp_plan_phase_name(fsdp_plan_phase phase); /* "forward"; static */

/* What was being computed. */
typedef struct fsdp_plan_moment {
    fsdp_plan_phase phase;
    int unit; /* index; -1: outside of all units */
} fsdp_plan_moment;

typedef struct fsdp_plan_unit {
    char *name; /* path of its module; "" for the root */
    char *class_name;
    int modules;                /* that are this unit together; the first of them has the name */
    int64_t numel, local_numel; /* of its parameters: whole, and rank 0's */
    /* Of one step; bytes are what FSDP2 would send and receive, of the whole collective. */
    uint64_t all_gathers, all_gather_bytes, reduce_scatters, reduce_scatter_bytes;
    uint64_t all_reduces, all_reduce_bytes; /* over replicas */
} fsdp_plan_unit;

typedef enum fsdp_plan_event_kind {
    FSDP_PLAN_BEGIN,   /* the unit begins to compute */
    FSDP_PLAN_END,     /* and ends */
    FSDP_PLAN_GATHER,  /* its all-gather sets out */
    FSDP_PLAN_UNSHARD, /* and has arrived */
    FSDP_PLAN_RESHARD,
    FSDP_PLAN_PUBLISH,    /* its gradients set out */
    FSDP_PLAN_REDUCE,     /* and are summed */
    FSDP_PLAN_ALL_REDUCE, /* over replicas too */
} fsdp_plan_event_kind;

typedef struct fsdp_plan_event {
    fsdp_plan_event_kind kind;
    int unit;
    fsdp_plan_phase phase; /* of what is computed then */
    int64_t allocated;     /* of this rank, then */
} fsdp_plan_event;

typedef struct fsdp_plan {
    char *class_name; /* of the model */
    char *tree;       /* its modules, as --print-model wants them; NULL: not wanted */
    fsdp_task task;
    int64_t numel;
    int world_size, local_world_size;
    int64_t rows, source_length, target_length; /* of a batch; target_length 0 but for seq2seq */
    bool length_is_assumed; /* neither --max-seq-length nor the model bounds it */
    bool takes_ids_whole;   /* seq2seq: rows of ids, whose lengths no option bounds */
    int micro_steps;
    fsdp_plan_unit *units;
    size_t n_units, cap_units;
    fsdp_plan_memory init, forward, backward, step; /* what is allocated at their ends */
    fsdp_plan_memory peak, most;                /* all tags when the sum peaks; each tag's own */
    fsdp_plan_memory most_in[FSDP_PLAN_PHASES]; /* each tag's own, by what was computed */
    fsdp_plan_moment peak_at;
    int64_t reserved; /* the most that the allocator holds for them: with the holes between */
    int64_t staging;  /* the most that copies beside an --async-save take, which it does not hold */
    uint64_t small_collectives, small_bytes; /* of a step: counts, losses; not norms */
    fsdp_plan_event *events;                 /* of the last micro-step, in order */
    size_t n_events, cap_events;
} fsdp_plan;

/* @param config as for fsdp_train_run(); data and outputs are not looked at
 * @param local_world_size a divisor of world_size
 * @return FSDP_ERR_INVALID for ranks or lengths that do not fit, and what opening the model returns
 */
FSDP_MUST_CHECK fsdp_status fsdp_plan_create(const fsdp_train_config *config, int world_size,
                                             int local_world_size, fsdp_plan **plan);
void fsdp_plan_destroy(fsdp_plan *plan); /* accepts NULL */

/* What all ranks of one host hold: `reserved`, `staging` and FSDP_BESIDE_TENSORS_BYTES of each. */
int64_t fsdp_plan_host_bytes(const fsdp_plan *plan);

/* Tables for people; schedule: also the order of collectives (plan_report.c). */
FSDP_MUST_CHECK fsdp_status fsdp_plan_print(const fsdp_plan *plan, FILE *out, bool schedule);
/* The same as one JSON object. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_print_json(const fsdp_plan *plan, FILE *out, bool schedule);
/* "root" or the unit's path; static or the plan's. */
const char *fsdp_plan_unit_name(const fsdp_plan *plan, int unit);
