/* See job.h. */
#include "tests/accelerator/job.h"

#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

/* ---- data: row i has class i % 2, and ids that depend on class and row ---- */

static int64_t rows_len(void *self)
{
    return *(int64_t *)self;
}

static fsdp_status rows_get(void *self, int64_t index, fsdp_example *example)
{
    int32_t ids[8], n = 3 + (int32_t)(index * 7 % 6), label = (int32_t)(index % 2);
    (void)self;
    for (int32_t i = 0; i < n; i++)
        ids[i] = 5 + 16 * label + (int32_t)((index * 31 + i * i * 7) % 16);
    FSDP_TRY(fsdp_token_list_set(&example->source, ids, (size_t)n));
    return fsdp_token_list_set(&example->labels, &label, 1);
}

fsdp_status job_dataset(int64_t rows, fsdp_dataset **dataset)
{
    static const fsdp_dataset_ops ops = {.len = rows_len, .get = rows_get, .close = free};
    int64_t *self = malloc(sizeof *self);
    if (!self)
        return FSDP_ERR_NOMEM;
    *self = rows;
    const fsdp_status status = fsdp_dataset_create(&ops, self, dataset);
    if (status != FSDP_OK)
        free(self);
    return status;
}

static fsdp_status open_data(job *j)
{
    const job_options *o = &j->options;
    const fsdp_loader_options options = {.sampler = {.batch_size = o->batch_size,
                                                     .world_size = 1,
                                                     .accumulation = o->accumulation,
                                                     .drop_last = o->drop_last,
                                                     .no_shuffle = o->no_shuffle,
                                                     .seed = 5},
                                         .format = {.task = FSDP_TASK_CLASSIFICATION}};
    FSDP_TRY(job_dataset(o->rows, &j->dataset));
    FSDP_TRY(fsdp_loader_create(j->dataset, &options, &j->loader));
    return fsdp_accelerator_prepare_data_loader(j->accelerator, j->loader);
}

/* ---- models ---- */

static fsdp_status open_model(job *j, int i)
{
    fsdp_model_config config;
    fsdp_adamw_options adamw = fsdp_adamw_defaults();
    adamw.lr = 0.01;
    FSDP_TRY(fsdp_model_config_read(fsdp_test_path("golden/bert_tiny/model"), &config));
    fsdp_model_config_set_dropout(&config, j->options.dropout);
    FSDP_TRY(fsdp_model_create(&config, &j->models[i]));
    FSDP_TRY(fsdp_adamw_create(j->models[i], &adamw, &j->optimizers[i]));
    FSDP_TRY(fsdp_accelerator_prepare_model(j->accelerator, j->models[i]));
    return fsdp_module_init(j->models[i], (uint64_t)i + 1);
}

static fsdp_status open_scheduler(job *j)
{
    const fsdp_lr_schedule schedule = {.kind = FSDP_LR_LINEAR,
                                       .warmup_steps = j->options.warmup,
                                       .total_steps = j->options.total_steps};
    if (!j->options.total_steps)
        return FSDP_OK;
    return fsdp_accelerator_prepare_scheduler(j->accelerator, j->optimizers[0], &schedule,
                                              &j->scheduler);
}

fsdp_status job_open(job *j, fsdp_group *group, const job_options *options)
{
    *j = (job){.options = *options};
    j->options.accelerator.group = group;
    j->options.accelerator.cpu = true;
    j->options.rows = options->rows ? options->rows : 36;
    j->options.batch_size = options->batch_size ? options->batch_size : 3;
    FSDP_TRY(fsdp_accelerator_create(&j->options.accelerator, &j->accelerator));
    FSDP_TRY(open_model(j, 0));
    if (options->second)
        FSDP_TRY(open_model(j, 1));
    for (int i = 0; i < 2; i++) {
        fsdp_optimizer *optimizer = j->optimizers[options->reversed ? 1 - i : i];
        if (optimizer)
            FSDP_TRY(fsdp_accelerator_prepare_optimizer(j->accelerator, optimizer));
    }
    FSDP_TRY(open_data(j));
    return open_scheduler(j);
}

void job_close(job *j)
{
    fsdp_loader_destroy(j->loader);
    fsdp_dataset_close(j->dataset);
    for (int i = 0; i < 2; i++) {
        fsdp_optimizer_destroy(j->optimizers[i]);
        fsdp_module_destroy(j->models[i]);
    }
    fsdp_accelerator_destroy(j->accelerator);
}

/* ---- training ---- */

static fsdp_status train_model(job *j, int i, const fsdp_batch *batch, double *loss)
{
    FSDP_TRY(fsdp_accelerator_forward_backward(j->accelerator, j->models[i], batch, loss));
    if (j->options.max_grad_norm > 0 && fsdp_accelerator_sync_gradients(j->accelerator))
        FSDP_TRY(fsdp_accelerator_clip_grad_norm(j->accelerator, j->models[i],
                                                 j->options.max_grad_norm, NULL, NULL));
    FSDP_TRY(fsdp_accelerator_optimizer_step(j->accelerator, j->optimizers[i]));
    if (i == 0 && j->scheduler)
        FSDP_TRY(fsdp_accelerator_scheduler_step(j->accelerator, j->scheduler));
    return fsdp_accelerator_zero_grad(j->accelerator, j->optimizers[i]);
}

static fsdp_status train_batch(job *j, const fsdp_batch *batch, double *loss)
{
    FSDP_TRY(fsdp_accelerator_accumulate_begin(j->accelerator));
    j->steps += fsdp_accelerator_sync_gradients(j->accelerator);
    FSDP_TRY(train_model(j, 0, batch, loss));
    if (j->options.second)
        FSDP_TRY(train_model(j, 1, batch, NULL));
    return fsdp_accelerator_accumulate_end(j->accelerator);
}

fsdp_status job_step(job *j, double *loss, bool *more)
{
    fsdp_batch *batch;
    FSDP_TRY(fsdp_accelerator_next(j->accelerator, j->loader, &batch));
    *more = batch != NULL;
    if (!batch)
        return FSDP_OK;
    const fsdp_status status = train_batch(j, batch, loss);
    fsdp_batch_release(batch);
    return status;
}

fsdp_status job_epoch(job *j)
{
    double loss;
    for (bool more = true; more;)
        FSDP_TRY(job_step(j, &loss, &more));
    return FSDP_OK;
}

/* ---- weights ---- */

static fsdp_status append_weights(const job *j, int i, float *weights, size_t *n)
{
    fsdp_state_dict *dict;
    fsdp_status status = FSDP_OK;
    FSDP_TRY(fsdp_accelerator_get_state_dict(j->accelerator, j->models[i], &dict));
    for (size_t k = 0; status == FSDP_OK && k < fsdp_state_dict_count(dict); k++) {
        const fsdp_tensor *tensor = fsdp_state_dict_at(dict, k)->tensor;
        const size_t numel = (size_t)fsdp_tensor_numel(tensor);
        if (*n + numel > JOB_WEIGHTS)
            status = fsdp_error(FSDP_ERR_INVALID, "JOB_WEIGHTS is too small");
        else
            status = fsdp_tensor_to_floats(tensor, weights + *n);
        *n += numel;
    }
    fsdp_state_dict_destroy(dict);
    return status;
}

fsdp_status job_weights(const job *j, float weights[JOB_WEIGHTS])
{
    size_t n = 0;
    memset(weights, 0, JOB_WEIGHTS * sizeof *weights);
    for (int i = 0; i < 2; i++)
        if (j->models[i])
            FSDP_TRY(append_weights(j, i, weights, &n));
    return FSDP_OK;
}
