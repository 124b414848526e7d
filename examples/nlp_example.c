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
 * accumulation, --checkpointing_steps, --resume_from_checkpoint and --output_dir are those of
 * by_feature/. If a setting is given by no flag, the value of `fsdp launch --config_file FILE`
 * applies. Without `fsdp launch` there is one rank. Start reading at training_function() at the
 * end. FSDP_TRY() returns from a function if the call fails; main() prints the reason. */
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

#define ADD(flag, kind, field, preset, text)                                                       \
    .name = flag, .type = FSDP_OPTION_##kind, .offset = offsetof(arguments, field),                \
    .value = preset, .help = text
static const fsdp_option flags[] = {
    {ADD("mixed_precision", CHOICE, mixed_precision, "no", "dtype of the computation"),
     .choices = precisions, .shown_default = "as `fsdp launch` says, or no"},
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
    fsdp_accelerator *accelerator;
    fsdp_pretrained pretrained;
    fsdp_tokenizer *tokenizer;
    fsdp_dataset *train_dataset, *eval_dataset;
    fsdp_loader *train_dataloader, *eval_dataloader;
    int batch_size, gradient_accumulation_steps;
    int64_t steps_per_epoch, step; /* optimizer steps; `step` counts the finished ones */
    long save_every;               /* steps; 0: never, -1: at the end of an epoch */
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_accelerated_scheduler *lr_scheduler;
} job;

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

/* DataLoader(dataset, shuffle, batch_size, drop_last). Batches have no padding. */
static fsdp_status data_loader(const job *j, const fsdp_dataset *dataset, bool training,
                               fsdp_loader **loader)
{
    const fsdp_loader_options options = {
        .sampler = {.batch_size = training ? j->batch_size : EVAL_BATCH_SIZE,
                    .world_size = 1,
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
    return data_loader(j, j->eval_dataset, false, &j->eval_dataloader);
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Accelerator(cpu, mixed_precision, gradient_accumulation_steps). If the batch size is too big we
 * use gradient accumulation. */
static fsdp_status accelerator(job *j)
{
    const bool given = fsdp_options_given(j->options, "mixed_precision");
    const bool too_big = j->args.batch_size > MAX_GPU_BATCH_SIZE;
    const fsdp_accelerator_options options = {
        .cpu = j->args.cpu,
        .mixed_precision = given ? precisions[j->args.mixed_precision] : NULL,
        .gradient_accumulation_steps = too_big ? j->args.batch_size / MAX_GPU_BATCH_SIZE : 0};
    j->batch_size = too_big ? MAX_GPU_BATCH_SIZE : j->args.batch_size;
    FSDP_TRY(fsdp_accelerator_create(&options, &j->accelerator));
    j->gradient_accumulation_steps = fsdp_accelerator_gradient_accumulation_steps(j->accelerator);
    fsdp_accelerator_set_seed(j->accelerator, (uint64_t)j->args.seed);
    return FSDP_OK;
}

/* accelerator.prepare(model). The model has no memory before it is sharded: unlike in Python, its
 * weights are loaded afterwards. A new classifier is drawn. */
static fsdp_status prepare_model(job *j)
{
    FSDP_TRY(fsdp_model_create(&j->pretrained.config, &j->model));
    FSDP_TRY(fsdp_accelerator_prepare_model(j->accelerator, j->model));
    return fsdp_pretrained_load(&j->pretrained, j->model, fsdp_accelerator_group(j->accelerator),
                                (uint64_t)j->args.seed, NULL);
}

/* AdamW, get_linear_schedule_with_warmup(), and accelerator.prepare() of everything else.
 * num_training_steps is that of one process, because Accelerate advances the schedule by
 * num_processes in each step. */
static fsdp_status prepare(job *j)
{
    const int64_t batches = fsdp_dataset_len(j->train_dataset) / j->batch_size;
    const fsdp_lr_schedule schedule = {.kind = FSDP_LR_LINEAR,
                                       .lr = j->args.lr,
                                       .warmup_steps = j->args.num_warmup_steps,
                                       .total_steps = batches * j->args.num_epochs /
                                                      j->gradient_accumulation_steps};
    fsdp_adamw_options adamw = fsdp_adamw_defaults();
    adamw.lr = j->args.lr;
    FSDP_TRY(prepare_model(j));
    FSDP_TRY(fsdp_adamw_create(j->model, &adamw, &j->optimizer));
    FSDP_TRY(fsdp_accelerator_prepare_optimizer(j->accelerator, j->optimizer));
    FSDP_TRY(fsdp_accelerator_prepare_data_loader(j->accelerator, j->train_dataloader));
    FSDP_TRY(fsdp_accelerator_prepare_data_loader(j->accelerator, j->eval_dataloader));
    j->steps_per_epoch = fsdp_loader_steps(j->train_dataloader);
    return fsdp_accelerator_prepare_scheduler(j->accelerator, j->optimizer, &schedule,
                                              &j->lr_scheduler);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* accelerator.load_state(). The scheduler has counted the finished steps, and the loader goes on
 * with the batch after them. */
static fsdp_status load_state(job *j, const char *dir)
{
    FSDP_TRY(fsdp_accelerator_load_state(j->accelerator, dir));
    j->step = fsdp_accelerated_scheduler_last_epoch(j->lr_scheduler) /
              fsdp_accelerator_num_processes(j->accelerator);
    fsdp_accelerator_print(j->accelerator, "Resumed from checkpoint: %s, at step %lld\n", dir,
                           (long long)j->step);
    FSDP_TRY(fsdp_accelerator_set_epoch(j->accelerator, j->train_dataloader,
                                        j->step / j->steps_per_epoch));
    return fsdp_accelerator_skip_first_batches(j->accelerator, j->train_dataloader,
                                               j->step % j->steps_per_epoch *
                                                   j->gradient_accumulation_steps);
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
    return fsdp_accelerator_save_state(j->accelerator, dir);
}

static fsdp_status read_checkpointing_steps(job *j)
{
    const char *text = j->args.checkpointing_steps;
    char *end;
    if (!text)
        return FSDP_OK;
    if (strcmp(text, "epoch") == 0) {
        j->save_every = -1;
        return FSDP_OK;
    }
    j->save_every = strtol(text, &end, 10);
    if (j->save_every > 0 && !*end)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--checkpointing_steps %s: expected a number of steps, or epoch", text);
}

/* ---- training and evaluation ----------------------------------------------------------------- */

/* Print the mean over the ranks of `sum`, the loss of this rank's batches of a step. */
static fsdp_status log_loss(job *j, double sum, double lr)
{
    if (!j->args.logging_steps || j->step % j->args.logging_steps)
        return FSDP_OK;
    FSDP_TRY(fsdp_all_reduce(fsdp_accelerator_group(j->accelerator), &sum, 1, FSDP_DTYPE_F64,
                             FSDP_REDUCE_SUM));
    fsdp_accelerator_print(j->accelerator, "step %lld: loss %.7f, lr %.6g\n", (long long)j->step,
                           sum / fsdp_accelerator_num_processes(j->accelerator), lr);
    return FSDP_OK;
}

/* The body of `with accelerator.accumulate(model):`. */
static fsdp_status train_batch(job *j, int epoch, const fsdp_batch *batch, double *sum)
{
    const double lr = fsdp_accelerated_scheduler_last_lr(j->lr_scheduler);
    double loss;
    FSDP_TRY(fsdp_accelerator_accumulate_begin(j->accelerator));
    const bool sync = fsdp_accelerator_sync_gradients(j->accelerator);
    FSDP_TRY(fsdp_accelerator_forward_backward(j->accelerator, j->model, batch, &loss));
    FSDP_TRY(fsdp_accelerator_optimizer_step(j->accelerator, j->optimizer));
    FSDP_TRY(fsdp_accelerator_scheduler_step(j->accelerator, j->lr_scheduler));
    FSDP_TRY(fsdp_accelerator_zero_grad(j->accelerator, j->optimizer));
    FSDP_TRY(fsdp_accelerator_accumulate_end(j->accelerator));
    *sum += loss / j->gradient_accumulation_steps;
    if (!sync)
        return FSDP_OK;
    j->step++;
    FSDP_TRY(log_loss(j, *sum, lr));
    *sum = 0;
    return save_state(j, epoch, false);
}

static fsdp_status train_epoch(job *j, int epoch)
{
    double sum = 0;
    fsdp_batch *batch;
    for (;;) {
        FSDP_TRY(fsdp_accelerator_next(j->accelerator, j->train_dataloader, &batch));
        if (!batch)
            return FSDP_OK;
        const fsdp_status status = train_batch(j, epoch, batch, &sum);
        fsdp_batch_release(batch);
        FSDP_TRY(status);
    }
}

/* What metric.add_batch() counts: rows, right predictions, right predictions of class 1, all
 * predictions of class 1, and labels of class 1. */
enum {
    ROWS,
    RIGHT,
    RIGHT_OF_1,
    PREDICTED_1,
    LABELS_1,
    COUNTS
};

/* outputs = model(**batch); predictions = outputs.logits.argmax(dim=-1). `pairs` gets prediction
 * and label of each row. */
static fsdp_status predict(const job *j, const fsdp_batch *batch, float *logits, int32_t *pairs)
{
    const int64_t labels = fsdp_model_config_info(&j->pretrained.config).num_labels;
    fsdp_scope *s;
    FSDP_TRY(fsdp_accelerator_scope_open(j->accelerator, false, batch, &s));
    const fsdp_tensor *outputs = fsdp_model_logits(s, j->model).logits;
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK && batch->rows)
        status = fsdp_tensor_to_floats(outputs, logits);
    fsdp_scope_close(s);
    for (int32_t i = 0; status == FSDP_OK && i < batch->rows; i++) {
        const float *row = logits + i * labels;
        int32_t prediction = 0;
        for (int32_t k = 1; k < labels; k++)
            prediction = row[k] > row[prediction] ? k : prediction;
        pairs[2 * i] = prediction;
        pairs[2 * i + 1] = batch->labels[i];
    }
    return status;
}

/* accelerator.gather_for_metrics((predictions, batch["labels"])), whose rows every rank gets;
 * metric.add_batch(predictions, references) */
static fsdp_status add_batch(const job *j, int32_t rows, const int32_t *pairs,
                             double counts[COUNTS])
{
    fsdp_tensor *mine, *all = NULL;
    FSDP_TRY(fsdp_tensor_from_data(fsdp_accelerator_device(j->accelerator), FSDP_DTYPE_I32, 2,
                                   (int64_t[]){rows, 2}, pairs, FSDP_TAG_DATA, &mine));
    fsdp_status status = fsdp_accelerator_gather_for_metrics(j->accelerator, mine, &all);
    fsdp_tensor_release(mine);
    const int64_t n = status == FSDP_OK ? fsdp_tensor_size(all, 0) : 0;
    int32_t *found = calloc((size_t)(2 * n + 1), sizeof *found);
    if (status == FSDP_OK)
        status = found ? fsdp_tensor_copy_to_host(all, found, (size_t)(2 * n) * sizeof *found)
                       : FSDP_ERR_NOMEM;
    for (int64_t i = 0; status == FSDP_OK && i < n; i++) {
        const int32_t prediction = found[2 * i], label = found[2 * i + 1];
        counts[ROWS]++;
        counts[RIGHT] += prediction == label;
        counts[RIGHT_OF_1] += prediction == 1 && label == 1;
        counts[PREDICTED_1] += prediction == 1;
        counts[LABELS_1] += label == 1;
    }
    free(found);
    fsdp_tensor_release(all);
    return status;
}

static fsdp_status evaluate_batch(const job *j, const fsdp_batch *batch, double counts[COUNTS])
{
    const int64_t labels = fsdp_model_config_info(&j->pretrained.config).num_labels;
    float *logits = calloc((size_t)(batch->rows * labels + 1), sizeof *logits);
    int32_t *pairs = calloc((size_t)batch->rows * 2 + 1, sizeof *pairs);
    fsdp_status status = logits && pairs ? predict(j, batch, logits, pairs) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = add_batch(j, batch->rows, pairs, counts);
    free(pairs);
    free(logits);
    return status;
}

/* The metric of evaluate.load("glue", "mrpc"): accuracy, and F1 of "equivalent". */
static fsdp_status evaluate_epoch(const job *j, int epoch)
{
    double counts[COUNTS] = {0};
    fsdp_batch *batch;
    for (;;) {
        FSDP_TRY(fsdp_accelerator_next(j->accelerator, j->eval_dataloader, &batch));
        if (!batch)
            break;
        const fsdp_status status = evaluate_batch(j, batch, counts);
        fsdp_batch_release(batch);
        FSDP_TRY(status);
    }
    const double all_1 = counts[PREDICTED_1] + counts[LABELS_1];
    fsdp_accelerator_print(j->accelerator, "epoch %d: {'accuracy': %.16g, 'f1': %.16g}\n", epoch,
                           counts[RIGHT] / counts[ROWS],
                           all_1 > 0 ? 2 * counts[RIGHT_OF_1] / all_1 : 0.0);
    return FSDP_OK;
}

/* ---- main ------------------------------------------------------------------------------------ */

static fsdp_status training_function(job *j)
{
    FSDP_TRY(read_checkpointing_steps(j));
    FSDP_TRY(accelerator(j));
    FSDP_TRY(fsdp_pretrained_open(j->args.model_name_or_path, j->args.from_config, &j->pretrained));
    FSDP_TRY(fsdp_tokenizer_open(j->pretrained.dir, &j->tokenizer));
    FSDP_TRY(get_dataloaders(j));
    FSDP_TRY(prepare(j));
    if (!j->steps_per_epoch)
        return fsdp_error(FSDP_ERR_INVALID,
                          "the training data have fewer rows than one step of all processes needs");
    if (j->args.resume_from_checkpoint)
        FSDP_TRY(load_state(j, j->args.resume_from_checkpoint));
    for (int epoch = (int)(j->step / j->steps_per_epoch); epoch < j->args.num_epochs; epoch++) {
        FSDP_TRY(train_epoch(j, epoch));
        FSDP_TRY(evaluate_epoch(j, epoch));
        FSDP_TRY(save_state(j, epoch, true));
    }
    return fsdp_accelerator_end_training(j->accelerator);
}

static void cleanup(job *j)
{
    fsdp_loader_destroy(j->train_dataloader);
    fsdp_loader_destroy(j->eval_dataloader);
    fsdp_dataset_close(j->train_dataset);
    fsdp_dataset_close(j->eval_dataset);
    fsdp_tokenizer_close(j->tokenizer);
    fsdp_optimizer_destroy(j->optimizer);
    fsdp_module_destroy(j->model);
    fsdp_pretrained_close(&j->pretrained);
    fsdp_accelerator_destroy(j->accelerator);
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
        fsdp_error_print("nlp_example");
        if (j.accelerator) /* stops the peers immediately, with this message */
            fsdp_group_abort(fsdp_accelerator_group(j.accelerator), status);
    }
    const int code = status == FSDP_OK ? 0 : j.options ? 1 : 2; /* 2 for misuse, as in argparse */
    cleanup(&j);
    return code;
}
