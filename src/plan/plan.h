/* What a run of `fsdp train` needs, computed before the run. Optimizer steps of the real program
 * (model, units with their hooks, tape, clipping, optimizer, allocator) run on the meta device over
 * a group without peers (src/comm/plan_group.h), until a step needs no more memory than the steps
 * before it: mostly three steps, at most five. Nothing is estimated: each figure is what those
 * steps request on rank 0, which has the most rows. Batches are full: --batch-size rows of the
 * greatest length. The plan describes the last step, when the prefetch order is known and the
 * optimizer state exists.
 *
 * For more than one host (local_world_size < world_size), which no transport of this build
 * supports: each host has only the master weights of its own ranks, unshards into buffers that its
 * ranks share, with float32 too, and has the gradient buffers of its own ranks. Buffers for an
 * exchange between hosts are not counted. */
#pragma once
#include <stdio.h>

#include <fsdp/tensor.h>

#include "src/train/config.h"
#include "src/train/trainer.h"

/* Requested bytes of one rank by purpose. Memory that the ranks of a host share counts in equal
 * parts. */
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

/* What was being computed at some time. */
typedef struct fsdp_plan_moment {
    fsdp_plan_phase phase;
    int unit; /* index; -1: outside of all units */
} fsdp_plan_moment;

typedef struct fsdp_plan_unit {
    char *name; /* path of its module; "" for the root */
    char *class_name;
    int modules; /* number of modules in this unit; the first one gives it its name */
    int64_t numel, local_numel; /* elements of its parameters: all of them, and rank 0's */
    /* Per step. Bytes are what FSDP2 would send and receive, for the whole collective. */
    uint64_t all_gathers, all_gather_bytes, reduce_scatters, reduce_scatter_bytes;
    uint64_t all_reduces, all_reduce_bytes; /* over replicas */
} fsdp_plan_unit;

typedef enum fsdp_plan_event_kind {
    FSDP_PLAN_BEGIN,   /* the unit begins to compute */
    FSDP_PLAN_END,     /* the unit has computed */
    FSDP_PLAN_GATHER,  /* its all-gather begins */
    FSDP_PLAN_UNSHARD, /* its all-gather is complete */
    FSDP_PLAN_RESHARD,
    FSDP_PLAN_PUBLISH,    /* its gradients are posted */
    FSDP_PLAN_REDUCE,     /* its gradients are summed over the ranks */
    FSDP_PLAN_ALL_REDUCE, /* its gradients are summed over the replicas */
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
    int64_t rows, source_length, target_length; /* of a batch; target_length 0 unless seq2seq */
    bool length_is_assumed; /* neither --max-seq-length nor the model bounds it */
    bool takes_ids_whole;   /* seq2seq: rows of ids, whose lengths no option bounds */
    int micro_steps;
    fsdp_plan_unit *units;
    size_t n_units, cap_units;
    fsdp_plan_memory init, forward, backward, step; /* bytes allocated at the end of each */
    fsdp_plan_memory peak, most; /* peak: all tags when the sum peaks; most: the peak of each tag */
    fsdp_plan_memory most_in[FSDP_PLAN_PHASES]; /* the peak of each tag, by what was computed */
    fsdp_plan_moment peak_at;
    int64_t reserved; /* the most that the allocator reserves for these tensors, with holes */
    int64_t staging;  /* the most that the copies of an --async-save take; not part of `reserved` */
    uint64_t small_collectives, small_bytes; /* of a step: counts and losses, but not norms */
    fsdp_plan_event *events;                 /* of the last micro-step, in order */
    size_t n_events, cap_events;
} fsdp_plan;

/* @param config as for fsdp_train_run(); data and outputs are not read
 * @param local_world_size a divisor of world_size
 * @return FSDP_ERR_INVALID for ranks or lengths that do not fit, and what opening the model
 * returns */
FSDP_MUST_CHECK fsdp_status fsdp_plan_create(const fsdp_train_config *config, int world_size,
                                             int local_world_size, fsdp_plan **plan);
void fsdp_plan_destroy(fsdp_plan *plan); /* accepts NULL */

/* Bytes of all ranks of one host: `reserved`, `staging` and FSDP_BESIDE_TENSORS_BYTES of each
 * rank. */
int64_t fsdp_plan_host_bytes(const fsdp_plan *plan);

/* Print tables for people; with `schedule` also the order of collectives (plan_report.c). */
FSDP_MUST_CHECK fsdp_status fsdp_plan_print(const fsdp_plan *plan, FILE *out, bool schedule);
/* The same as one JSON object. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_print_json(const fsdp_plan *plan, FILE *out, bool schedule);
/* "root" or the unit's path; static or owned by the plan. */
const char *fsdp_plan_unit_name(const fsdp_plan *plan, int unit);
