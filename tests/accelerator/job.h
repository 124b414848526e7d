/* A small training with an accelerator: a BERT of two layers that learns classes of rows of ids. */
#pragma once
#include <fsdp.h>

enum {
    JOB_WEIGHTS = 16384 /* room for all weights of the model */
};

/* Zero means default. */
typedef struct job_options {
    fsdp_accelerator_options accelerator;
    int64_t rows;     /* rows of the dataset; default 36 */
    int batch_size;   /* default 3 */
    int accumulation; /* field of the sampler; default 1 */
    bool drop_last, no_shuffle;
    double dropout;       /* default 0 */
    double max_grad_norm; /* 0: do not clip */
    int64_t warmup, total_steps;
    bool second;   /* a second model and optimizer: those of a job with two networks */
    bool reversed; /* prepare the second optimizer before the first one */
} job_options;

typedef struct job {
    job_options options;
    fsdp_accelerator *accelerator;
    fsdp_module *models[2];
    fsdp_optimizer *optimizers[2];
    fsdp_dataset *dataset;
    fsdp_loader *loader;
    fsdp_accelerated_scheduler *scheduler; /* NULL without total_steps */
    int64_t steps;                         /* optimizer steps so far */
} job;

/* Open everything and prepare it. The job must be closed also after an error. */
FSDP_MUST_CHECK fsdp_status job_open(job *j, fsdp_group *group, const job_options *options);
void job_close(job *j);
/* Train on one batch of the loader. At the end of an epoch *more is false. *loss is the mean over
 * this rank's rows. */
FSDP_MUST_CHECK fsdp_status job_step(job *j, double *loss, bool *more);
/* Train to the end of the epoch. */
FSDP_MUST_CHECK fsdp_status job_epoch(job *j);
/* Copy the weights of all models to `weights`, on the main process. Collective. */
FSDP_MUST_CHECK fsdp_status job_weights(const job *j, float weights[JOB_WEIGHTS]);
/* A dataset of n rows, without a model. */
FSDP_MUST_CHECK fsdp_status job_dataset(int64_t rows, fsdp_dataset **dataset);
