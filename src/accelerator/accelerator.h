/* The private state of an accelerator. objects.c finds prepared objects for the other files.
 * prepare.c, data.c, step.c and checkpoint.c implement the calls of a training loop. */
#pragma once
#include <fsdp/accelerator.h>

#include "src/accelerator/environment.h"
#include "src/report/tracking.h"

struct fsdp_accelerated_scheduler {
    fsdp_optimizer *optimizer; /* borrowed */
    fsdp_lr_schedule schedule;
    int64_t last_epoch; /* number of steps by which the schedule has advanced */
    bool one_a_step;    /* an optimizer step advances the schedule by 1, not by the world size */
};

/* A prepared loader, and how many batches of its epoch the program has read. */
typedef struct fsdp_accelerated_loader {
    fsdp_loader *loader; /* borrowed */
    int64_t epoch;
    int64_t given;   /* number of batches of the current epoch that were returned or skipped */
    int64_t batches; /* number of batches of this rank in an epoch */
    bool ended;      /* fsdp_accelerator_next() has reported the end of the epoch; its next call
                        begins a new epoch */
} fsdp_accelerated_loader;

typedef struct fsdp_prepared_optimizer {
    fsdp_optimizer *optimizer; /* borrowed */
    size_t model;              /* index of the model whose parameters the optimizer updates */
    /* fp16: what has happened since the loss scale was last updated. unscaled: the gradients were
     * unscaled. stepped: the optimizer has made a step. */
    bool unscaled, stepped;
    /* If `unscaled` is true: value of fsdp_accelerator.backwards when the gradients were
     * unscaled. */
    uint64_t unscaled_after;
    bool skipped; /* the last step was skipped, because a gradient was not finite */
} fsdp_prepared_optimizer;

/* An object of fsdp_accelerator_register_for_checkpointing(). */
typedef struct fsdp_registered_object {
    fsdp_checkpointed_object is; /* its member `name` points to the copy `name` below */
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
    fsdp_group *group; /* NULL only until fsdp_accelerator_create() has joined the group */
    bool owns_group;
    fsdp_device *device;
    bool owns_device;
    /* Mesh for HSDP if the environment gives its sizes, otherwise NULL; owned. */
    fsdp_device_mesh *mesh;
    /* Where activations are offloaded. NULL: activations are not offloaded. Owned. */
    fsdp_activation_offload *offload;
    fsdp_accelerator_settings settings;
    FILE *out;
    fsdp_tape *tape;
    fsdp_grad_scaler *scaler;
    /* fp16: true if an optimizer has stepped since the loss scale was last updated, or if its
     * unscaled gradients were released without a step since then. The scale is updated only at the
     * next forward, so that all optimizers of an iteration use the same scale. */
    bool update_pending;
    uint64_t backwards; /* number of backward passes so far */

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
    int64_t next_hook; /* handle that the next registered hook gets */

    fsdp_loader *active; /* the loader that was read last and has not ended, or NULL */
    /* Other loaders whose epoch has begun and not ended, the newest last. An example is the
     * training loader while the evaluation loader is `active`. */
    fsdp_loader **outer;
    size_t n_outer, cap_outer;

    bool accumulating; /* true between the calls accumulate_begin and accumulate_end */
    bool sync_gradients;
    /* While accumulating: index and number of micro-steps; otherwise 0 and 1. */
    int micro_step, n_micro_steps;
    /* Index of the micro-step of the next batch; 0: the next batch begins an accumulation. */
    int next_micro_step;
    int planned; /* number of micro-steps of the current accumulation */
    uint64_t seed;
    uint32_t forwards; /* number of training scopes that were opened without a batch */
    bool triggered;

    /* The open trackers. NULL if no trackers are open, if this is not the main process, or if
     * neither log_with nor tracker_command asks for trackers. */
    fsdp_tracking *tracking;
    bool tracks;       /* trackers are open */
    int64_t iteration; /* number of the next checkpoint */
};

/* ---- objects.c: find a prepared object; if it was not prepared, return -1 or NULL ---- */
int64_t fsdp_accelerator_find_model(const fsdp_accelerator *a, const fsdp_module *model);
int64_t fsdp_accelerator_find_optimizer(const fsdp_accelerator *a, const fsdp_optimizer *optimizer);
fsdp_accelerated_loader *fsdp_accelerator_find_loader(const fsdp_accelerator *a,
                                                      const fsdp_loader *loader);
/* Return FSDP_ERR_INVALID if the object was not prepared. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_know_model(const fsdp_accelerator *a,
                                                        const fsdp_module *model);
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_know_optimizer(const fsdp_accelerator *a,
                                                            const fsdp_optimizer *optimizer);
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_know_loader(const fsdp_accelerator *a,
                                                         const fsdp_loader *loader);

/* ---- data.c ---- */
/* At the end of an epoch, the current batches of all ranks may contain examples that even_batches
 * repeats. If they do, return the number of examples in these batches without the repetitions.
 * Otherwise return -1. */
int64_t fsdp_accelerator_rows_of_round(const fsdp_accelerator *a);

/* ---- step.c ---- */
/* fp16: update the loss scale if update_pending is true. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_update_scale(fsdp_accelerator *a);
/* fp16: forget which gradients were unscaled and which optimizers have stepped. Called when the
 * gradients or the scaler's state are replaced. */
void fsdp_accelerator_forget_unscaled(fsdp_accelerator *a);
/* Set the optimizer's learning rate to that of the schedule at last_epoch. */
void fsdp_accelerated_scheduler_apply(const fsdp_accelerated_scheduler *scheduler);

/* ---- hooks.c ---- */
/* Call the hooks of save_state() or, if `loads` is true, those of load_state(). Collective. If a
 * hook fails on a rank, all ranks return its error. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_call_hooks(fsdp_accelerator *a, bool loads,
                                                        const char *dir);

/* ---- trackers.c ---- */
void fsdp_accelerator_close_trackers(fsdp_accelerator *a, double seconds);
/* Check options->log_with. Return an error if it contains an unknown name. A service needs a
 * tracker program, so also return an error if it contains the name of a service and `command`
 * (options->tracker_command) is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_check_trackers(const char *log_with,
                                                            const char *command);
