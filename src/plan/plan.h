/* Computes the memory and the collectives of a run of `fsdp train` before the run.
 *
 * Optimizer steps of the real program (model, units with their hooks, tape, clipping, optimizer,
 * allocator) run on the meta device, over a group without peers (src/comm/plan_group.h). Nothing is
 * estimated: the plan counts what these steps request on rank 0, which has the most rows of
 * parameters. Batches are full: they have --batch-size rows of the greatest length. Steps are
 * repeated until a step needs no more memory than the steps before it. In most cases three steps
 * are enough, and there are at most five. The plan describes the last step, in which the prefetch
 * order is known and the optimizer state exists.
 *
 * A plan may also be for several hosts (local_world_size < world_size). Each host then has the
 * master weights and the gradient buffers of its own ranks, and memory for the rows that these
 * ranks get from ranks of other hosts. The plan assumes that the ranks of a host unshard into
 * shared buffers, even if parameters are float32. The memory of the MPI library is not counted. */
#pragma once
#include <stdio.h>

#include <fsdp/tensor.h>

#include "src/models/model_type.h"
#include "src/train/trainer.h"
#include "src/train_config/config.h"

/* The bytes that one rank requests, by purpose (tag) and in total. Memory that the ranks of a host
 * share is divided equally among these ranks. */
typedef struct fsdp_plan_memory {
    int64_t tag[FSDP_TAG_COUNT], total;
} fsdp_plan_memory;

typedef enum fsdp_plan_phase {
    FSDP_PLAN_INIT,
    FSDP_PLAN_FORWARD,
    FSDP_PLAN_RECOMPUTATION, /* a checkpointed region runs its forward again in backward */
    FSDP_PLAN_BACKWARD,
    FSDP_PLAN_OPTIMIZER,
    FSDP_PLAN_SAVE,
    FSDP_PLAN_PHASES
} fsdp_plan_phase;
const char *fsdp_plan_phase_name(fsdp_plan_phase phase); /* for example "forward"; static */

/* What the program was computing at one moment. */
typedef struct fsdp_plan_moment {
    fsdp_plan_phase phase;
    int unit; /* index of the unit; -1: no unit */
} fsdp_plan_moment;

typedef struct fsdp_plan_unit {
    char *name; /* path of the unit's first module; "" for the root */
    char *class_name;
    int modules; /* number of modules in this unit */
    /* numel: number of elements in the unit's parameters. local_numel: number of these elements
     * that rank 0 owns. */
    int64_t numel, local_numel;
    /* Number of collectives per step, and their bytes. A collective counts with the size of the
     * whole tensors that FSDP2 would gather or reduce in its place. */
    uint64_t all_gathers, all_gather_bytes, reduce_scatters, reduce_scatter_bytes;
    uint64_t all_reduces, all_reduce_bytes; /* sums of the gradients over the replicas */
    /* Number of ranks over which the unit is sharded, and how many of these ranks are on rank 0's
     * host. */
    int shard_ranks, shard_local_ranks;
    /* Number of replicas that hold the rows of rank 0, and how many of these replicas are on rank
     * 0's host. */
    int replicas, local_replicas;
    int kept_ranks; /* as in fsdp_unit_info */
} fsdp_plan_unit;

typedef enum fsdp_plan_event_kind {
    FSDP_PLAN_BEGIN,   /* the unit starts computing */
    FSDP_PLAN_END,     /* the unit has finished computing */
    FSDP_PLAN_GATHER,  /* the unit's all-gather begins */
    FSDP_PLAN_UNSHARD, /* the unit's all-gather is complete */
    FSDP_PLAN_RESHARD,
    FSDP_PLAN_POST,       /* the unit's gradients, or a section of them, are posted */
    FSDP_PLAN_REDUCE,     /* the unit's gradients are summed over the ranks */
    FSDP_PLAN_POST_LANES, /* the sums over the replicas begin: see FSDP_UNIT_POST_LANES */
    FSDP_PLAN_SUM_LANES,  /* the replicas exchange sums: see FSDP_UNIT_SUM_LANES */
    FSDP_PLAN_ALL_REDUCE, /* the unit's gradients are summed over the replicas */
} fsdp_plan_event_kind;

typedef struct fsdp_plan_event {
    fsdp_plan_event_kind kind;
    int unit;
    fsdp_plan_phase phase; /* what the program was computing */
    int64_t allocated;     /* bytes on this rank at the time of the event */
    /* The bytes of the event, as fsdp_unit_event in src/fsdp/observer.h describes them. 0 for
     * FSDP_PLAN_BEGIN, FSDP_PLAN_END and FSDP_PLAN_RESHARD, and if the collective has no peers. */
    uint64_t bytes;
    double flops; /* operations of matrix products from the beginning of the step to the event */
} fsdp_plan_event;

typedef struct fsdp_plan {
    char *class_name; /* class of the model's root module */
    char *tree;       /* the modules, as --print-model prints them; NULL: not requested */
    fsdp_task task;
    int64_t numel;
    int world_size, local_world_size;
    /* The size of a batch: rows, and tokens per row. target_length is 0 if the task is not
     * seq2seq. */
    int64_t rows, source_length, target_length;
    bool length_is_assumed; /* true: source_length is an assumption, because neither
                               --max-seq-length nor the model bounds it */
    /* Only for seq2seq. True: rows contain token ids, which are not cut. So rows may be longer than
     * source_length and target_length. */
    bool takes_ids_whole;
    int micro_steps;
    bool set_internode_reduce_dtype; /* as in fsdp_fully_shard_options */
    fsdp_dtype internode_reduce_dtype;
    fsdp_plan_unit *units;
    size_t n_units, cap_units;
    /* The memory after initialization, after a forward, after a backward, and after a step. */
    fsdp_plan_memory init, forward, backward, step;
    /* peak: the memory at the moment when the total is greatest. most: the peak of each tag and of
     * the total. Each of these peaks may be at a different moment. */
    fsdp_plan_memory peak, most;
    fsdp_plan_memory most_in[FSDP_PLAN_PHASES]; /* like `most`, but within each phase */
    fsdp_plan_moment peak_at;
    /* Peak of the bytes that the allocator reserves for tensors, including unused space between
     * them. */
    int64_t reserved;
    int64_t staging; /* peak of the copies for --async-save; not part of `reserved` */
    /* The largest number of ranks that share a card. 0: the plan is for the CPU. */
    int ranks_per_card;
    /* Number of collectives per step that exchange counts, losses and scales, and their bytes.
     * Collectives that compute norms are not counted. */
    uint64_t small_collectives, small_bytes;
    bool has_float8_scales;  /* one of the small collectives computes the scales of float8
                                weights */
    fsdp_plan_event *events; /* events of the last micro-step, in order */
    size_t n_events, cap_events;
    fsdp_plan_event *timeline; /* events of all micro-steps of the step, in order */
    size_t n_timeline, cap_timeline;
    double flops; /* operations of the matrix products of a step, with those that are recomputed */
    /* The matrix products of the model, which the model's type counts without recomputation. */
    fsdp_model_work work;
} fsdp_plan;

/* Make a plan.
 *
 * @param config as for fsdp_train_run(). No rows of data are read and no files are written
 * @param local_world_size number of ranks per host; must divide world_size
 * @return FSDP_ERR_INVALID if the number of ranks or the length of rows is impossible. Also the
 * errors of opening the model */
FSDP_MUST_CHECK fsdp_status fsdp_plan_create(const fsdp_train_config *config, int world_size,
                                             int local_world_size, fsdp_plan **plan);
void fsdp_plan_destroy(fsdp_plan *plan); /* accepts NULL */

/* Return the number of bytes that all ranks of one host need together. Each rank needs
 * plan->reserved + plan->staging + FSDP_BESIDE_TENSORS_BYTES. If the plan is for cards,
 * plan->reserved is memory of the card and not of the host. */
int64_t fsdp_plan_host_bytes(const fsdp_plan *plan);
/* Return the number of bytes that --memory-limit limits. This is fsdp_plan_host_bytes(). But if the
 * plan is for cards, it is the number of bytes that all ranks on one card reserve together. */
int64_t fsdp_plan_limited_bytes(const fsdp_plan *plan);

/* Return the bytes that one rank needs: its share of fsdp_plan_host_bytes(). But if the plan is for
 * cards, return fsdp_plan_limited_bytes(), the bytes of all ranks that share a card. */
int64_t fsdp_plan_rank_bytes(const fsdp_plan *plan);

/* Print the first two lines of a plan: the model, the ranks and the batch. */
void fsdp_plan_print_head(const fsdp_plan *plan, FILE *out);
/* Print the plan as tables. If `schedule` is true, also print the order of collectives. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_print(const fsdp_plan *plan, FILE *out, bool schedule);
/* Print the plan as one JSON object. If `schedule` is true, it contains the order of
 * collectives. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_print_json(const fsdp_plan *plan, FILE *out, bool schedule);
/* Return the path of the unit's first module, "root" for the root, or "" if `unit` is negative. The
 * text is static or belongs to the plan. */
const char *fsdp_plan_unit_name(const fsdp_plan *plan, int unit);
