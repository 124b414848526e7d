/* Accelerate's examples/nlp_example.py in C: fine-tune a BERT on MRPC, pairs of sentences that mean
 * the same or not, sharded over all ranks. Instead of
 *
 *     accelerate launch --num_processes 2 --use_fsdp examples/nlp_example.py
 *
 * run
 *
 *     fsdp launch --nproc-per-node 2 build/examples/nlp_example
 *
 * with MRPC in data/mrpc/ (train.csv and dev.csv) and bert-base-cased in the Hugging Face cache, or
 * with --train_file, --validation_file and --model_name_or_path. A file is CSV or JSON, or a folder
 * of datasets.save_to_disk(). Functions, variables and printed lines are those of nlp_example.py;
 * --checkpointing_steps, --resume_from_checkpoint and --output_dir are those of
 * by_feature/checkpointing.py. Without `fsdp launch` there is one rank. Start reading at
 * training_function() at the end. FSDP_TRY() returns from a function if the call fails; main()
 * prints the reason. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp.h>

enum {
    MAX_GPU_BATCH_SIZE = 16,
    EVAL_BATCH_SIZE = 32
};

/* ---- arguments ------------------------------------------------------------------------------- */

typedef struct arguments {
    int mixed_precision; /* index of the choices */
    bool cpu;
    double lr; /* this and the next three are nlp_example.py's `config` */
    int num_epochs, seed, batch_size;
    int num_warmup_steps, max_length, logging_steps;
    bool no_shuffle, from_config;
    const char *model_name_or_path, *train_file, *validation_file;
    const char *checkpointing_steps, *resume_from_checkpoint, *output_dir;
} arguments;

static const char *const precisions[] = {"no", "fp16", "bf16", NULL};
static const char *const policies[] = {"fp32_policy", "fpSixteen", "bfSixteen"};

#define ADD(flag, kind, field, preset, text)                                                       \
    .name = flag, .type = FSDP_OPTION_##kind, .offset = offsetof(arguments, field),                \
    .value = preset, .help = text
static const fsdp_option flags[] = {
    {ADD("mixed_precision", CHOICE, mixed_precision, "no", "dtype of the computation"),
     .choices = precisions},
    {ADD("cpu", BOOL, cpu, "false", "train on the CPU")},
    {ADD("lr", DOUBLE, lr, "2e-5", "learning rate"), .metavar = "LR"},
    {ADD("num_epochs", INT, num_epochs, "3", "number of epochs"), .bounds = FSDP_AT_LEAST(1)},
    {ADD("seed", INT, seed, "42", "random seed"), .bounds = FSDP_AT_LEAST(0)},
    {ADD("batch_size", INT, batch_size, "16",
         "rows of a rank and step; above 16, gradients are accumulated"),
     .bounds = FSDP_AT_LEAST(1)},
    {ADD("num_warmup_steps", INT, num_warmup_steps, "100", "warmup of the learning rate"),
     .bounds = FSDP_AT_LEAST(0)},
    {ADD("max_length", INT, max_length, "0", "tokens of a pair; 0: as many as the model has"),
     .bounds = FSDP_AT_LEAST(0)},
    {ADD("logging_steps", INT, logging_steps, "0", "print the loss every so many steps; 0: never"),
     .bounds = FSDP_AT_LEAST(0)},
    {ADD("no_shuffle", BOOL, no_shuffle, "false", "take the rows in the order of the file")},
    {ADD("from_config", BOOL, from_config, "false", "begin with random weights")},
    {ADD("model_name_or_path", STRING, model_name_or_path, "bert-base-cased",
         "a folder, or a name in the Hugging Face cache")},
    {ADD("train_file", STRING, train_file, "data/mrpc/train.csv", "training rows")},
    {ADD("validation_file", STRING, validation_file, NULL,
         "validation rows; default: dev.csv next to train.csv, or the folder's own split")},
    {ADD("checkpointing_steps", STRING, checkpointing_steps, NULL,
         "save the state every so many steps, or 'epoch'; default: never")},
    {ADD("resume_from_checkpoint", STRING, resume_from_checkpoint, NULL,
         "a folder that --checkpointing_steps wrote")},
    {ADD("output_dir", STRING, output_dir, ".", "where states are saved")},
};
static const fsdp_options_spec parser = {.program = "nlp_example",
                                         .usage = "[options]",
                                         .summary = "Simple example of training script.",
                                         .table = flags,
                                         .count = sizeof flags / sizeof *flags};

/* State that the Python functions have as local variables. */
typedef struct job {
    arguments args;
    fsdp_options *options;
    fsdp_group *group;
    int rank, num_processes;
    fsdp_device *device;
    fsdp_pretrained pretrained;
    fsdp_tokenizer *tokenizer;
    fsdp_dataset *train_dataset, *eval_dataset;
    fsdp_loader *train_dataloader, *eval_dataloader;
    int batch_size, gradient_accumulation_steps;
    int64_t steps_per_epoch, step; /* optimizer steps; `step` counts the finished ones */
    long save_every;               /* steps; 0: never, -1: at the end of an epoch */
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_grad_scaler *scaler;
    fsdp_lr_schedule lr_scheduler;
} job;

#define PRINT(...) (void)(j->rank == 0 && printf(__VA_ARGS__)) /* accelerator.print(...) */

/* ---- data ------------------------------------------------------------------------------------ */

/* load_dataset() and map(tokenize_function): a pair is tokenized when a loader requests its row,
 * with [CLS], [SEP] and token_type_ids, and truncated to max_length. The labels are those of GLUE,
 * as numbers or names. */
static fsdp_status load_dataset(const job *j, const char *path, bool validation,
                                fsdp_dataset **dataset)
{
    static const char *const names[] = {"not_equivalent", "equivalent"};
    const fsdp_model_info info = fsdp_model_config_info(&j->pretrained.config);
    const fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION,
                                          .tokenizer = j->tokenizer,
                                          .max_length = j->args.max_length,
                                          .max_positions = info.max_positions,
                                          .vocab_size = info.vocab_size,
                                          .type_vocab_size = info.type_vocab_size,
                                          .num_classes = info.num_labels,
                                          .class_names = info.num_labels == 2 ? names : NULL,
                                          .validation = validation};
    return fsdp_dataset_open(path, &options, dataset);
}

/* DataLoader(dataset, shuffle, batch_size, drop_last). Batch i of an epoch is that of rank i %
 * num_processes, as Accelerate's BatchSamplerShard has it. Batches have no padding. */
static fsdp_status data_loader(const job *j, const fsdp_dataset *dataset, bool training,
                               fsdp_loader **loader)
{
    const fsdp_loader_options options = {
        .sampler = {.batch_size = training ? j->batch_size : EVAL_BATCH_SIZE,
                    .rank = j->rank,
                    .world_size = j->num_processes,
                    .accumulation = training ? j->gradient_accumulation_steps : 1,
                    .no_shuffle = !training || j->args.no_shuffle,
                    .drop_last = training,
                    .seed = (uint64_t)j->args.seed},
        .format = fsdp_model_config_info(&j->pretrained.config).format,
        .num_workers = training};
    return fsdp_loader_create(dataset, &options, loader);
}

static fsdp_status get_dataloaders(job *j)
{
    const char *train = j->args.train_file, *validation = j->args.validation_file;
    const size_t length = strlen(train);
    char dev[4096];
    if (!validation && length > 9 && length < sizeof dev &&
        strcmp(train + length - 9, "train.csv") == 0) {
        snprintf(dev, sizeof dev, "%.*sdev.csv", (int)(length - 9), train);
        validation = dev;
    }
    FSDP_TRY(load_dataset(j, train, false, &j->train_dataset));
    FSDP_TRY(load_dataset(j, validation ? validation : train, true, &j->eval_dataset));
    FSDP_TRY(data_loader(j, j->train_dataset, true, &j->train_dataloader));
    j->steps_per_epoch = fsdp_loader_steps(j->train_dataloader);
    return data_loader(j, j->eval_dataset, false, &j->eval_dataloader);
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Accelerator(cpu, mixed_precision): one rank of the process group, with its device. */
static fsdp_status accelerator(job *j)
{
    FSDP_TRY(fsdp_init_process_group(NULL, &j->group));
    j->rank = fsdp_group_rank(j->group);
    j->num_processes = fsdp_group_world_size(j->group);
    if (!j->args.cpu)
        return fsdp_default_device(j->group, &j->device);
    fsdp_device_options cpu = {.name = "cpu"};
    FSDP_TRY(fsdp_default_threads(j->group, &cpu.threads));
    return fsdp_device_create(&cpu, &j->device);
}

/* accelerator.prepare(model) with fsdp_transformer_layer_cls_to_wrap: BertLayer. The model has no
 * memory before it is sharded. Then its weights are loaded; a new classifier is drawn. */
static fsdp_status prepare_model(job *j)
{
    static const char *const layers[] = {"BertLayer", NULL};
    const fsdp_wrap_policy policy = {.kind = FSDP_WRAP_TRANSFORMER,
                                     .transformer_layer_cls = layers};
    fsdp_mixed_precision precision;
    FSDP_TRY(fsdp_mixed_precision_preset(policies[j->args.mixed_precision], &precision));
    const fsdp_fully_sharded_data_parallel_options options = {.auto_wrap_policy = &policy,
                                                              .mixed_precision = &precision};
    FSDP_TRY(fsdp_model_create(&j->pretrained.config, &j->model));
    FSDP_TRY(fsdp_fully_sharded_data_parallel(j->model, j->group, j->device, &options));
    return fsdp_pretrained_load(&j->pretrained, j->model, j->group, (uint64_t)j->args.seed, NULL);
}

/* AdamW and get_linear_schedule_with_warmup(). num_training_steps is that of one process, because
 * Accelerate advances the schedule by num_processes in each step. */
static fsdp_status prepare_optimizer(job *j)
{
    const fsdp_grad_scaler_options scaler = {
        .disabled = strcmp(precisions[j->args.mixed_precision], "fp16") != 0, .group = j->group};
    const int64_t batches = fsdp_dataset_len(j->train_dataset) / j->batch_size;
    fsdp_adamw_options adamw = fsdp_adamw_defaults();
    adamw.lr = j->args.lr;
    j->lr_scheduler = (fsdp_lr_schedule){.kind = FSDP_LR_LINEAR,
                                         .lr = j->args.lr,
                                         .warmup_steps = j->args.num_warmup_steps,
                                         .total_steps = batches * j->args.num_epochs /
                                                        j->gradient_accumulation_steps};
    FSDP_TRY(fsdp_lr_schedule_check(&j->lr_scheduler));
    FSDP_TRY(fsdp_adamw_create(j->model, &adamw, &j->optimizer));
    return fsdp_grad_scaler_create(&scaler, &j->scaler);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* accelerator.save_state() or load_state(). The scheduler counts the finished steps. */
static fsdp_status move_state(job *j, const char *dir, bool save)
{
    fsdp_accelerate_scheduler scheduler = {
        .base_lr = j->args.lr,
        .last_lr = fsdp_lr_at(&j->lr_scheduler, j->step * j->num_processes),
        .last_epoch = j->step * j->num_processes};
    const fsdp_accelerate_state state = {.models = &j->model,
                                         .n_models = 1,
                                         .optimizers = &j->optimizer,
                                         .n_optimizers = 1,
                                         .schedulers = &scheduler,
                                         .n_schedulers = 1,
                                         .scaler = j->args.mixed_precision == 1 ? j->scaler : NULL,
                                         .seed = (uint64_t)j->args.seed};
    const fsdp_accelerate_options options = {.overwrite = true};
    if (save)
        return fsdp_accelerate_save_state(&state, dir, j->group, &options);
    FSDP_TRY(fsdp_accelerate_load_state(&state, dir, j->group, NULL));
    j->step = scheduler.last_epoch / j->num_processes;
    PRINT("Resumed from checkpoint: %s, at step %lld\n", dir, (long long)j->step);
    return FSDP_OK;
}

static fsdp_status save_state(job *j, int epoch, bool at_end)
{
    char dir[4096];
    if (at_end ? j->save_every != -1 : j->save_every < 1 || j->step % j->save_every)
        return FSDP_OK;
    if (at_end)
        snprintf(dir, sizeof dir, "%s/epoch_%d", j->args.output_dir, epoch);
    else
        snprintf(dir, sizeof dir, "%s/step_%lld", j->args.output_dir, (long long)j->step);
    return move_state(j, dir, true);
}

static fsdp_status read_checkpointing_steps(job *j)
{
    const char *text = j->args.checkpointing_steps;
    char *end;
    if (!text)
        return FSDP_OK;
    j->save_every = strcmp(text, "epoch") == 0 ? -1 : strtol(text, &end, 10);
    if (j->save_every == -1 || (j->save_every > 0 && !*end))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--checkpointing_steps %s: expected a number of steps, or epoch", text);
}

/* ---- training and evaluation ----------------------------------------------------------------- */

/* optimizer.step(), lr_scheduler.step(), optimizer.zero_grad(). `sum` is the sum of the losses of
 * this rank's batches. */
static fsdp_status optimizer_step(job *j, double sum)
{
    fsdp_optimizer_set_lr(j->optimizer, fsdp_lr_at(&j->lr_scheduler, j->step * j->num_processes));
    FSDP_TRY(fsdp_grad_scaler_step(j->scaler, j->optimizer, 1.0f));
    FSDP_TRY(fsdp_grad_scaler_update(j->scaler));
    fsdp_optimizer_zero_grad(j->optimizer);
    j->step++;
    if (!j->args.logging_steps || j->step % j->args.logging_steps)
        return FSDP_OK;
    FSDP_TRY(fsdp_all_reduce(j->group, &sum, 1, FSDP_DTYPE_F64, FSDP_REDUCE_SUM));
    PRINT("step %lld: loss %.7f, lr %.6g\n", (long long)j->step, sum / j->num_processes,
          fsdp_optimizer_lr(j->optimizer, 0));
    return FSDP_OK;
}

/* loss = model(**batch).loss / gradient_accumulation_steps; accelerator.backward(loss) */
static fsdp_status backward(const job *j, const fsdp_batch *batch, int micro_step, double *sum)
{
    const int steps = j->gradient_accumulation_steps;
    const fsdp_forward_backward_options options = {
        .training = true,
        .factor = 1.0 / (batch->label_tokens ? batch->label_tokens : 1) / steps,
        .scaler = j->scaler,
        .micro_step = micro_step,
        .n_micro_steps = steps};
    double loss;
    FSDP_TRY(fsdp_forward_backward(j->model, j->device, batch, &options, &loss));
    *sum += loss;
    return FSDP_OK;
}

static fsdp_status train_epoch(job *j, int epoch)
{
    double sum = 0;
    fsdp_batch *batch;
    fsdp_loader_seek(j->train_dataloader, epoch, j->step - epoch * j->steps_per_epoch);
    for (int micro_step = 0;; micro_step = (micro_step + 1) % j->gradient_accumulation_steps) {
        FSDP_TRY(fsdp_loader_next(j->train_dataloader, &batch));
        if (!batch)
            return FSDP_OK;
        sum = micro_step ? sum : 0;
        const fsdp_status status = backward(j, batch, micro_step, &sum);
        fsdp_batch_release(batch);
        FSDP_TRY(status);
        if (micro_step + 1 < j->gradient_accumulation_steps)
            continue;
        FSDP_TRY(optimizer_step(j, sum));
        FSDP_TRY(save_state(j, epoch, false));
    }
}

/* The counts of metric.add_batch(): rows, right ones, and those of class 1. */
enum {
    ROWS,
    RIGHT,
    RIGHT_OF_1,
    PREDICTED_1,
    LABELS_1,
    COUNTS
};

/* predictions = outputs.logits.argmax(dim=-1); metric.add_batch(predictions, references) */
static fsdp_status add_batch(const job *j, const fsdp_batch *batch, double counts[COUNTS])
{
    const int64_t labels = fsdp_model_config_info(&j->pretrained.config).num_labels;
    const fsdp_scope_options options = {.batch = batch};
    float *logits = calloc((size_t)(batch->rows * labels + 1), sizeof *logits);
    fsdp_scope *s;
    if (!logits)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_scope_open(j->device, NULL, &options, &s);
    if (status == FSDP_OK) {
        const fsdp_tensor *outputs = fsdp_model_logits(s, j->model).logits;
        status = fsdp_scope_status(s);
        if (status == FSDP_OK && batch->rows)
            status = fsdp_tensor_to_floats(outputs, logits);
        fsdp_scope_close(s);
    }
    for (int32_t i = 0; status == FSDP_OK && i < batch->rows; i++) {
        const float *row = logits + i * labels;
        int32_t prediction = 0;
        for (int32_t k = 1; k < labels; k++)
            prediction = row[k] > row[prediction] ? k : prediction;
        counts[ROWS]++;
        counts[RIGHT] += prediction == batch->labels[i];
        counts[RIGHT_OF_1] += prediction == 1 && batch->labels[i] == 1;
        counts[PREDICTED_1] += prediction == 1;
        counts[LABELS_1] += batch->labels[i] == 1;
    }
    free(logits);
    return status;
}

/* The metric of evaluate.load("glue", "mrpc"): accuracy, and F1 of "equivalent". The last batches
 * have no repeated rows, so nothing has to be dropped as by gather_for_metrics(). */
static fsdp_status evaluate_epoch(const job *j, int epoch)
{
    double counts[COUNTS] = {0};
    fsdp_batch *batch;
    fsdp_loader_set_epoch(j->eval_dataloader, 0);
    for (;;) {
        FSDP_TRY(fsdp_loader_next(j->eval_dataloader, &batch));
        if (!batch)
            break;
        const fsdp_status status = add_batch(j, batch, counts);
        fsdp_batch_release(batch);
        FSDP_TRY(status);
    }
    FSDP_TRY(fsdp_all_reduce(j->group, counts, COUNTS, FSDP_DTYPE_F64, FSDP_REDUCE_SUM));
    const double all_1 = counts[PREDICTED_1] + counts[LABELS_1];
    PRINT("epoch %d: {'accuracy': %.16g, 'f1': %.16g}\n", epoch, counts[RIGHT] / counts[ROWS],
          all_1 > 0 ? 2 * counts[RIGHT_OF_1] / all_1 : 0.0);
    return FSDP_OK;
}

/* ---- main ------------------------------------------------------------------------------------ */

static fsdp_status training_function(job *j)
{
    FSDP_TRY(read_checkpointing_steps(j));
    FSDP_TRY(accelerator(j));
    /* If the batch size is too big we use gradient accumulation */
    j->batch_size = j->args.batch_size;
    j->gradient_accumulation_steps = 1;
    if (j->batch_size > MAX_GPU_BATCH_SIZE) {
        j->gradient_accumulation_steps = j->batch_size / MAX_GPU_BATCH_SIZE;
        j->batch_size = MAX_GPU_BATCH_SIZE;
    }
    FSDP_TRY(fsdp_pretrained_open(j->args.model_name_or_path, j->args.from_config, &j->pretrained));
    FSDP_TRY(fsdp_tokenizer_open(j->pretrained.dir, &j->tokenizer));
    FSDP_TRY(get_dataloaders(j));
    FSDP_TRY(prepare_model(j));
    FSDP_TRY(prepare_optimizer(j));
    if (j->args.resume_from_checkpoint)
        FSDP_TRY(move_state(j, j->args.resume_from_checkpoint, false));
    for (int epoch = (int)(j->step / j->steps_per_epoch); epoch < j->args.num_epochs; epoch++) {
        FSDP_TRY(train_epoch(j, epoch));
        FSDP_TRY(evaluate_epoch(j, epoch));
        FSDP_TRY(save_state(j, epoch, true));
    }
    return fsdp_barrier(j->group);
}

static void cleanup(job *j)
{
    fsdp_loader_destroy(j->train_dataloader);
    fsdp_loader_destroy(j->eval_dataloader);
    fsdp_dataset_close(j->train_dataset);
    fsdp_dataset_close(j->eval_dataset);
    fsdp_tokenizer_close(j->tokenizer);
    fsdp_grad_scaler_destroy(j->scaler);
    fsdp_optimizer_destroy(j->optimizer);
    fsdp_module_destroy(j->model);
    fsdp_pretrained_close(&j->pretrained);
    fsdp_device_destroy(j->device);
    fsdp_destroy_process_group(j->group);
    fsdp_options_destroy(j->options);
}

int main(int argc, char **argv)
{
    job j = {0};
    bool run = false;
    setvbuf(stdout, NULL, _IOLBF, 0); /* write each line immediately, even to a log file */
    fsdp_status status = fsdp_parse_args(&parser, argc, argv, &j.args, &j.options, &run);
    if (status == FSDP_OK && run)
        status = training_function(&j);
    if (status != FSDP_OK) {
        fprintf(stderr, "nlp_example: %s\n", fsdp_last_error());
        if (j.group)
            fsdp_group_abort(j.group, status); /* stops the peers immediately, with this message */
    }
    const int code = status == FSDP_OK ? 0 : j.options ? 1 : 2; /* 2 for misuse, as in argparse */
    cleanup(&j);
    return code;
}
