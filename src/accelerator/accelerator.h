/* The accelerator's own state. Its files call in one direction: objects.c finds prepared objects;
 * prepare.c, data.c, step.c and checkpoint.c are the calls of a loop. */
#pragma once
#include <fsdp/accelerator.h>

#include "src/accelerator/environment.h"
#include "src/report/tracking.h"

struct fsdp_accelerated_scheduler {
    fsdp_optimizer *optimizer; /* borrowed */
    fsdp_lr_schedule schedule;
    int64_t last_epoch; /* steps of the schedule so far */
    bool one_a_step;    /* split_batches: an optimizer step advances the schedule by 1 */
};

/* A prepared loader and its place in the epoch. */
typedef struct fsdp_accelerated_loader {
    fsdp_loader *loader; /* borrowed */
    int64_t epoch;
    int64_t given;   /* batches of the epoch that were returned or skipped */
    int64_t batches; /* batches of an epoch on this rank */
    bool ended;      /* the end of the epoch was returned: the next batch is that of a new epoch */
} fsdp_accelerated_loader;

typedef struct fsdp_prepared_optimizer {
    fsdp_optimizer *optimizer; /* borrowed */
    size_t model;              /* index of the model that it updates */
    /* fp16, since the scale was last updated: its gradients were unscaled, it has stepped */
    bool unscaled, stepped;
    bool skipped; /* its last step was skipped, because a gradient was not finite */
} fsdp_prepared_optimizer;

/* An object of fsdp_accelerator_register_for_checkpointing(). */
typedef struct fsdp_registered_object {
    fsdp_checkpointed_object is; /* its `name` is the field below */
    char *name;                  /* owned */
} fsdp_registered_object;

/* A function that save_state() or load_state() calls first. */
typedef struct fsdp_registered_hook {
    fsdp_accelerator_state_hook *call;
    void *context; /* borrowed */
    int64_t handle;
    bool loads; /* true: load_state() calls it; false: save_state() */
} fsdp_registered_hook;

struct fsdp_accelerator {
    fsdp_group *group; /* NULL only before it is joined */
    bool owns_group;
    fsdp_device *device;
    bool owns_device;
    fsdp_device_mesh *mesh;           /* HSDP of the environment, or NULL; owned */
    fsdp_activation_offload *offload; /* for kept activations, or NULL; owned */
    fsdp_accelerator_settings settings;
    FILE *out;
    fsdp_tape *tape;
    fsdp_grad_scaler *scaler;
    /* fp16: an optimizer has stepped since the scale was last updated. The update waits for the
     * next forward, so that all optimizers of an iteration use one scale. */
    bool update_pending;

    fsdp_module **models; /* [n_models] in the order of prepare; borrowed */
    size_t n_models, cap_models;
    fsdp_prepared_optimizer *optimizers;
    size_t n_optimizers, cap_optimizers;
    fsdp_accelerated_scheduler **schedulers; /* owned */
    size_t n_schedulers, cap_schedulers;
    fsdp_accelerated_loader *loaders;
    size_t n_loaders, cap_loaders;
    fsdp_registered_object *objects;
    size_t n_objects, cap_objects;
    fsdp_registered_hook *hooks; /* [n_hooks] in the order in which they were registered */
    size_t n_hooks, cap_hooks;
    int64_t next_hook; /* handle of the next one */

    fsdp_loader *active; /* the loader that was read last and has not ended, or NULL */
    /* Loaders whose iteration was begun before that of `active` and goes on after it, the newest
     * last; e.g. the training loader while another one evaluates. */
    fsdp_loader **outer;
    size_t n_outer, cap_outer;

    bool accumulating; /* between accumulate_begin and accumulate_end */
    bool sync_gradients;
    int micro_step, n_micro_steps; /* the place of the current batch; 0 and 1 outside */
    int next_micro_step;           /* 0: the next batch begins an accumulation */
    int planned;                   /* micro-steps of the accumulation that was begun */
    uint64_t seed;
    uint32_t forwards; /* training scopes without a batch so far */
    bool triggered;

    fsdp_tracking *tracking; /* on the main process, while trackers are open */
    bool tracks;             /* trackers are open */
    int64_t iteration;       /* number of the next checkpoint */
};

/* ---- objects.c: return the index of a prepared object, or -1 ---- */
int64_t fsdp_accelerator_find_model(const fsdp_accelerator *a, const fsdp_module *model);
int64_t fsdp_accelerator_find_optimizer(const fsdp_accelerator *a, const fsdp_optimizer *optimizer);
fsdp_accelerated_loader *fsdp_accelerator_find_loader(const fsdp_accelerator *a,
                                                      const fsdp_loader *loader);
/* Return FSDP_OK, or FSDP_ERR_INVALID with a message for an object that was not prepared. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_know_model(const fsdp_accelerator *a,
                                                        const fsdp_module *model);
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_know_optimizer(const fsdp_accelerator *a,
                                                            const fsdp_optimizer *optimizer);
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_know_loader(const fsdp_accelerator *a,
                                                         const fsdp_loader *loader);

/* ---- data.c ---- */
/* Return the number of examples that the ranks' current batches of the active loader have together,
 * without repeated ones; -1 if there is no active loader or it repeats none. */
int64_t fsdp_accelerator_rows_of_round(const fsdp_accelerator *a);

/* ---- step.c ---- */
/* fp16: update the scale if an optimizer has stepped since the last update. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_update_scale(fsdp_accelerator *a);
/* Set the optimizer's learning rate to that of the scheduler's place. */
void fsdp_accelerated_scheduler_apply(const fsdp_accelerated_scheduler *scheduler);

/* ---- hooks.c ---- */
/* Call the hooks of save_state() or, if `loads`, of load_state(). Collective; if a hook fails on a
 * rank, all ranks return its error. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_call_hooks(fsdp_accelerator *a, bool loads,
                                                        const char *dir);

/* ---- trackers.c ---- */
void fsdp_accelerator_close_trackers(fsdp_accelerator *a, double seconds);
/* Check the words of options->log_with. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_check_trackers(const char *log_with,
                                                            const char *command);
