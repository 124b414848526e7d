/* PyTorch's tutorial "Advanced Model Training with Fully Sharded Data Parallel" in C: fine-tune a
 * T5 for summarization on WikiHow, sharded over all ranks. Instead of
 *
 *     torchrun --nnodes 1 --nproc_per_node 4 T5_training.py
 *
 * run
 *
 *     fsdp launch --nnodes 1 --nproc_per_node 4 build/examples/t5_wikihow
 *
 * with wikihowAll.csv in the folder data/ and t5-base in the Hugging Face cache, or with --data-dir
 * and --model. Functions, variables, flags, printed lines and file names are those of
 * T5_training.py. Start reading at fsdp_main() at the end, with the original at hand. FSDP_TRY()
 * returns from a function if the call fails; main() prints the reason.
 *
 * There are two definitions of the loss. By default this program prints the mean over all label
 * tokens of the epoch: each token has the same weight, and padding is not counted. The original
 * pads labels to 150 tokens, trains on the padding, and prints the sum of the batches' means
 * divided by the sum of len(batch), which is 4 because a batch is a dict of 4 keys. With
 * --tutorial-loss this program trains on padding and prints the loss in the same way, for
 * comparison with the original's logs. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <fsdp.h>

/* ---- arguments: a table replaces argparse's add_argument() ----------------------------------- */

typedef struct arguments {
    int batch_size, test_batch_size, epochs, seed;
    double lr, gamma;
    bool no_cuda, track_memory, run_validation, save_model;
    const char *model, *data_dir;
    int sharding_strategy, mixed_precision, backward_prefetch; /* indices of the choices */
    bool activation_checkpointing, tutorial_loss;
} arguments;

static const char *const precisions[] = {"auto",        "bfSixteen", "fpSixteen",
                                         "fp32_policy", "grad_bf16", NULL};

#define ADD(flag, kind, field, preset, text)                                                       \
    .name = flag, .type = FSDP_OPTION_##kind, .offset = offsetof(arguments, field),                \
    .value = preset, .help = text
/* In T5_training.py these flags are store_false: they turn off what they turn on here. */
#define STORE_FALSE .note = "is on by default; in T5_training.py this flag turns it off"
#define N .bounds = FSDP_AT_LEAST(1), .metavar = "N"
static const fsdp_option flags[] = {
    {ADD("batch-size", INT, batch_size, "4", "input batch size for training"), N},
    {ADD("test-batch-size", INT, test_batch_size, "4", "input batch size for validation"), N},
    {ADD("epochs", INT, epochs, "2", "number of epochs to train"), N},
    {ADD("lr", DOUBLE, lr, ".002", "learning rate"), .metavar = "LR"},
    {ADD("gamma", DOUBLE, gamma, "0.7", "learning rate step gamma"), .metavar = "M"},
    {ADD("no-cuda", BOOL, no_cuda, "false", "disables CUDA")},
    {ADD("seed", INT, seed, "1", "random seed"), .bounds = FSDP_AT_LEAST(0), .metavar = "S"},
    {ADD("track-memory", BOOL, track_memory, "true", "track the memory"), STORE_FALSE},
    {ADD("run-validation", BOOL, run_validation, "true", "run the validation"), STORE_FALSE},
    {ADD("save-model", BOOL, save_model, "true", "save the model when validation improves"),
     STORE_FALSE},
    {ADD("model", STRING, model, "t5-base", "a folder, or a name in the Hugging Face cache")},
    {ADD("data-dir", STRING, data_dir, "data", "where wikihowAll.csv is, or a file like it")},
    {ADD("sharding-strategy", CHOICE, sharding_strategy, "FULL_SHARD", "what is sharded"),
     .choices = fsdp_sharding_strategy_choices},
    {ADD("mixed-precision", CHOICE, mixed_precision, "auto", "auto: bfSixteen if bf16_ready"),
     .choices = precisions},
    {ADD("backward-prefetch", CHOICE, backward_prefetch, "BACKWARD_PRE", "when to gather ahead"),
     .choices = fsdp_backward_prefetch_choices},
    {ADD("activation-checkpointing", BOOL, activation_checkpointing, "false",
         "compute the activations of blocks again in backward")},
    {ADD("tutorial-loss", BOOL, tutorial_loss, "false",
         "T5_training.py's loss, which counts padding")},
};
static const fsdp_options_spec parser = {.program = "t5_wikihow",
                                         .usage = "[options]",
                                         .summary = "T5 FSDP Example",
                                         .table = flags,
                                         .count = sizeof flags / sizeof *flags};

/* State that the Python functions pass to each other as arguments. */
typedef struct job {
    arguments args;
    fsdp_options *options;
    int rank;
    fsdp_group *group;
    fsdp_device *device;
    fsdp_pretrained pretrained;
    fsdp_tokenizer *tokenizer;
    fsdp_dataset *train_dataset, *val_dataset;
    fsdp_loader *train_loader, *val_loader;
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_grad_scaler *scaler;
    char time_of_run[64];
} job;

#define PRINT(...) (void)(j->rank == 0 && printf(__VA_ARGS__)) /* if rank == 0: print(...) */

/* ---- setup ----------------------------------------------------------------------------------- */

/* dist.init_process_group() and torch.cuda.set_device(). `fsdp launch` describes the other ranks in
 * environment variables. The device is this rank's card, or its share of the cores. */
static fsdp_status setup(job *j)
{
    FSDP_TRY(fsdp_init_process_group(NULL, &j->group));
    j->rank = fsdp_group_rank(j->group);
    if (!j->args.no_cuda)
        return fsdp_default_device(j->group, &j->device);
    fsdp_device_options cpu = {.name = "cpu"};
    FSDP_TRY(fsdp_default_threads(j->group, &cpu.threads));
    return fsdp_device_create(&cpu, &j->device);
}

/* from_pretrained() without the weights: the model is a tree without memory, as on torch's meta
 * device. The weights are loaded after sharding, so no rank allocates the unsharded model. */
static fsdp_status setup_model(job *j)
{
    FSDP_TRY(fsdp_pretrained_open(j->args.model, false, &j->pretrained));
    FSDP_TRY(fsdp_tokenizer_open(j->pretrained.dir, &j->tokenizer));
    return fsdp_model_create(&j->pretrained.config, &j->model);
}

static void get_date_of_run(job *j)
{
    const time_t now = time(NULL);
    strftime(j->time_of_run, sizeof j->time_of_run, "%Y-%m-%d-%I:%M:%S_%p", localtime(&now));
    PRINT("--> current date and time of run = %s\n", j->time_of_run);
}

static double format_metrics_to_gb(int64_t item)
{
    return (double)item / (1024 * 1024 * 1024);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* wikihow(tokenizer, type_path, num_samples, 512, 150) of summarization_dataset.py. The texts of a
 * row are read, cleaned and tokenized when a loader requests the row. */
static fsdp_status wikihow(const job *j, fsdp_split type_path, int64_t num_samples,
                           fsdp_dataset **dataset)
{
    const fsdp_model_info info = fsdp_model_config_info(&j->pretrained.config);
    const fsdp_dataset_options options = {.task = info.format.task,
                                          .tokenizer = j->tokenizer,
                                          .split = type_path,
                                          .max_samples = num_samples,
                                          .max_source_length = 512,
                                          .max_target_length = 150,
                                          .pad_targets = j->args.tutorial_loss,
                                          .cleaning = FSDP_CLEANING_WIKIHOW,
                                          .skip_long_summaries = true,
                                          .vocab_size = info.vocab_size};
    return fsdp_dataset_open(j->args.data_dir, &options, dataset);
}

/* DataLoader(dataset, sampler=DistributedSampler(dataset, rank, world_size), num_workers=2).
 * Batches have no padding, so only real tokens are computed. Unless --tutorial-loss is given,
 * validation uses each row once; a DistributedSampler would repeat some rows if the number of ranks
 * does not divide the number of rows. */
static fsdp_status data_loader(const job *j, const fsdp_dataset *dataset, bool shuffle,
                               int batch_size, fsdp_loader **loader)
{
    const bool distributed = shuffle || j->args.tutorial_loss;
    const fsdp_loader_options options = {
        .sampler = {.kind = distributed ? FSDP_SAMPLER_DISTRIBUTED : FSDP_SAMPLER_DEFAULT,
                    .batch_size = batch_size,
                    .rank = j->rank,
                    .world_size = fsdp_group_world_size(j->group),
                    .no_shuffle = !shuffle,
                    .seed = (uint64_t)j->args.seed},
        .format = fsdp_model_config_info(&j->pretrained.config).format,
        .num_workers = 2};
    return fsdp_loader_create(dataset, &options, loader);
}

static fsdp_status load_data(job *j)
{
    FSDP_TRY(wikihow(j, FSDP_SPLIT_TRAIN, 1500, &j->train_dataset));
    FSDP_TRY(wikihow(j, FSDP_SPLIT_VALIDATION, 300, &j->val_dataset));
    PRINT("Size of train dataset:  (%lld, 2)\nSize of Validation dataset:  (%lld, 2)\n",
          (long long)fsdp_dataset_len(j->train_dataset),
          (long long)fsdp_dataset_len(j->val_dataset));
    FSDP_TRY(data_loader(j, j->train_dataset, true, j->args.batch_size, &j->train_loader));
    return data_loader(j, j->val_dataset, false, j->args.test_batch_size, &j->val_loader);
}

/* ---- sharding the model ---------------------------------------------------------------------- */

/* mp_policy = bfSixteen if bf16_ready else None, unless another policy is requested. A CPU without
 * instructions for bfloat16 products widens the operands before each product. */
static fsdp_status mixed_precision(const job *j, fsdp_mixed_precision *mp_policy)
{
    const bool bf16_ready = fsdp_device_is_bf16_supported(j->device);
    const char *name = precisions[j->args.mixed_precision];
    PRINT("bf16_ready: %s, the CPU has %s bfloat16 matrices (AVX512-BF16, AMX-BF16)\n",
          bf16_ready ? "True" : "False",
          bf16_ready ? "instructions for" : "no instructions available for");
    if (j->rank == 0 && !bf16_ready && strcmp(name, "bfSixteen") == 0)
        fprintf(stderr, "t5_wikihow: warning: bfloat16 without such instructions is slow; "
                        "--mixed-precision fp32_policy is faster here\n");
    if (strcmp(name, "auto") == 0)
        name = bf16_ready ? "bfSixteen" : "fp32_policy";
    return fsdp_mixed_precision_preset(name, mp_policy);
}

/* model = FSDP(model, auto_wrap_policy, mixed_precision, device_id): each T5Block is gathered
 * before it computes and freed afterwards. The shared embedding belongs to the root, because
 * encoder and decoder both use it. */
static fsdp_status wrap(job *j)
{
    static const char *const transformer_layer_cls[] = {"T5Block", NULL};
    const fsdp_wrap_policy t5_auto_wrap_policy = {.kind = FSDP_WRAP_TRANSFORMER,
                                                  .transformer_layer_cls = transformer_layer_cls};
    fsdp_mixed_precision mp_policy = {0};
    FSDP_TRY(mixed_precision(j, &mp_policy));
    const fsdp_fully_sharded_data_parallel_options options = {
        .auto_wrap_policy = &t5_auto_wrap_policy,
        .sharding_strategy = (fsdp_sharding_strategy)j->args.sharding_strategy,
        .backward_prefetch = (fsdp_backward_prefetch)j->args.backward_prefetch,
        .mixed_precision = &mp_policy};
    if (j->args.activation_checkpointing)
        FSDP_TRY(fsdp_apply_activation_checkpointing(j->model, fsdp_check_class, "T5Block", NULL));
    FSDP_TRY(fsdp_fully_sharded_data_parallel(j->model, j->group, j->device, &options));
    return fsdp_pretrained_load(&j->pretrained, j->model, j->group, (uint64_t)j->args.seed, NULL);
}

/* AdamW(model.parameters(), lr=args.lr). Gradients in float16 need a ShardedGradScaler, which the
 * original does not have. For other dtypes the scaler is disabled. */
static fsdp_status setup_optimizer(job *j)
{
    const bool half = strcmp(precisions[j->args.mixed_precision], "fpSixteen") == 0;
    const fsdp_grad_scaler_options scaler = {.disabled = !half, .group = j->group};
    fsdp_adamw_options adamw = fsdp_adamw_defaults();
    adamw.lr = j->args.lr;
    FSDP_TRY(fsdp_adamw_create(j->model, &adamw, &j->optimizer));
    return fsdp_grad_scaler_create(&scaler, &j->scaler);
}

/* ---- training and validation ----------------------------------------------------------------- */

/* Run one batch. Adds its loss to fsdp_loss[0], and the divisor for the mean of the losses to
 * fsdp_loss[1]. */
static fsdp_status run_batch(const job *j, const fsdp_batch *batch, bool training,
                             double fsdp_loss[2])
{
    /* loss = model(**batch)["loss"]; loss.backward() if training, else torch.no_grad() */
    const fsdp_forward_backward_options options = {.training = training, .scaler = j->scaler};
    double loss;
    fsdp_optimizer_zero_grad(j->optimizer);
    FSDP_TRY(fsdp_forward_backward(j->model, j->device, batch, &options, &loss));
    if (training) {
        FSDP_TRY(fsdp_grad_scaler_step(j->scaler, j->optimizer, 1.0f)); /* optimizer.step() */
        FSDP_TRY(fsdp_grad_scaler_update(j->scaler));
    }
    fsdp_loss[0] += j->args.tutorial_loss ? loss : loss * batch->label_tokens;
    fsdp_loss[1] += j->args.tutorial_loss ? 4 : batch->label_tokens;
    return FSDP_OK;
}

/* Run all of this rank's batches of the loader, with a progress bar like tqdm's. *mean becomes the
 * mean loss over all ranks. */
static fsdp_status run_pass(const job *j, fsdp_loader *loader, bool training, double *mean)
{
    const fsdp_progress_options options = {
        .description = training ? "r0 Training Epoch" : "Validation Epoch",
        .color = training ? FSDP_PROGRESS_BLUE : FSDP_PROGRESS_GREEN,
        .total = fsdp_loader_steps(loader),
        .style = j->rank == 0 ? FSDP_PROGRESS_AUTO : FSDP_PROGRESS_OFF};
    double fsdp_loss[2] = {0};
    fsdp_progress *inner_pbar;
    fsdp_batch *batch;
    FSDP_TRY(fsdp_progress_create(&options, &inner_pbar));
    fsdp_status status = fsdp_loader_next(loader, &batch);
    while (status == FSDP_OK && batch) {
        status = run_batch(j, batch, training, fsdp_loss);
        fsdp_batch_release(batch);
        fsdp_progress_update(inner_pbar, 1, NULL);
        if (status == FSDP_OK)
            status = fsdp_loader_next(loader, &batch);
    }
    fsdp_progress_destroy(inner_pbar);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_all_reduce(j->group, fsdp_loss, 2, FSDP_DTYPE_F64, FSDP_REDUCE_SUM));
    *mean = fsdp_loss[0] / fsdp_loss[1];
    return FSDP_OK;
}

/* Train for one epoch. set_epoch() gives each epoch its own order of rows, which is the same on all
 * ranks. */
static fsdp_status train(const job *j, int epoch, double *train_accuracy)
{
    fsdp_loader_set_epoch(j->train_loader, epoch - 1);
    FSDP_TRY(run_pass(j, j->train_loader, true, train_accuracy));
    PRINT("Train Epoch: \t%d, Loss: \t%.4f\n", epoch, *train_accuracy);
    return FSDP_OK;
}

static fsdp_status validation(const job *j, double *val_loss)
{
    fsdp_loader_set_epoch(j->val_loader, 0);
    FSDP_TRY(run_pass(j, j->val_loader, false, val_loss));
    PRINT("Validation Loss: %.4f\n", *val_loss);
    return FSDP_OK;
}

/* ---- saving and statistics ------------------------------------------------------------------- */

/* Print rank 0's memory. "allocated" is the memory that tensors have now, and "at most" is its
 * maximum in this epoch, which shows the difference between strategies. "reserved" is the memory
 * that the allocator has for tensors. */
static void print_memory(const job *j)
{
    fsdp_memory_stats memory;
    fsdp_device_memory(j->device, &memory);
    fsdp_device_reset_peak_memory(j->device);
    PRINT("memory allocated: %.4f GiB, at most %.4f GiB; reserved: %.4f GiB\n",
          format_metrics_to_gb(memory.allocated), format_metrics_to_gb(memory.allocated_peak),
          format_metrics_to_gb(memory.reserved));
}

/* FullStateDictConfig(offload_to_cpu=True, rank0_only=True) and torch.save(). The state dict is
 * sharded; fsdp_torch_save() gathers the tensors one after another, and rank 0 writes them. No rank
 * gathers the whole model in memory. torch.load(weights_only=True) can read the file. */
static fsdp_status save_model(const job *j, int epoch, double curr_val_loss)
{
    char curr_epoch[64], save_name[256];
    fsdp_state_dict *cpu_state;
    snprintf(curr_epoch, sizeof curr_epoch, "-%d-%.4f.pt", epoch, curr_val_loss);
    snprintf(save_name, sizeof save_name, "T5-model--%s-%s", j->time_of_run, curr_epoch);
    PRINT("--> entering save model state\n--> saving model ...\n"
          "--> attempting to save model prefix %s\n--> saving as model name %s\n",
          curr_epoch, save_name);
    FSDP_TRY(fsdp_get_model_state_dict(j->model, NULL, &cpu_state));
    fsdp_status status = fsdp_torch_save(cpu_state, save_name, j->group);
    fsdp_state_dict_destroy(cpu_state);
    return status;
}

/* Train, validate, and save the model if its validation loss has improved. */
static fsdp_status run_epoch(const job *j, int epoch, double *best_val_loss)
{
    double train_accuracy, curr_val_loss = (double)INFINITY;
    FSDP_TRY(train(j, epoch, &train_accuracy));
    if (j->args.run_validation)
        FSDP_TRY(validation(j, &curr_val_loss));
    PRINT("--> epoch %d completed...entering save and stats zone\n", epoch);
    if (j->args.track_memory)
        print_memory(j);
    PRINT("completed save and stats zone...\n");
    if (!(curr_val_loss < *best_val_loss))
        return FSDP_OK;
    if (j->args.save_model)
        FSDP_TRY(save_model(j, epoch, curr_val_loss));
    *best_val_loss = curr_val_loss;
    PRINT("-->>>> New Val Loss Record: %.6f\n", *best_val_loss);
    return FSDP_OK;
}

/* ---- main ------------------------------------------------------------------------------------ */

static fsdp_status fsdp_main(job *j)
{
    FSDP_TRY(setup(j));
    if (j->rank == 0 && j->args.save_model && !j->args.run_validation)
        fprintf(stderr, "t5_wikihow: warning: a model is saved when its validation loss improves; "
                        "with --no-run-validation none ever is\n");
    FSDP_TRY(setup_model(j));
    FSDP_TRY(load_data(j));
    FSDP_TRY(wrap(j));
    FSDP_TRY(setup_optimizer(j));
    get_date_of_run(j);
    const fsdp_lr_schedule scheduler = {
        .kind = FSDP_LR_STEP, .lr = j->args.lr, .gamma = j->args.gamma, .step_size = 1};
    FSDP_TRY(fsdp_lr_schedule_check(&scheduler));
    const time_t training_start_time = time(NULL);
    double best_val_loss = (double)INFINITY;
    for (int epoch = 1; epoch <= j->args.epochs; epoch++) {
        FSDP_TRY(run_epoch(j, epoch, &best_val_loss));
        fsdp_optimizer_set_lr(j->optimizer, fsdp_lr_at(&scheduler, epoch)); /* scheduler.step() */
    }
    PRINT("--> %d epochs in %.0f s, best validation loss %.4f\n", j->args.epochs,
          difftime(time(NULL), training_start_time), best_val_loss);
    return fsdp_barrier(j->group);
}

static void cleanup(job *j)
{
    fsdp_loader_destroy(j->train_loader);
    fsdp_loader_destroy(j->val_loader);
    fsdp_dataset_close(j->train_dataset);
    fsdp_dataset_close(j->val_dataset);
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
        status = fsdp_main(&j);
    if (status != FSDP_OK) {
        fsdp_error_print("t5_wikihow");
        if (j.group)
            fsdp_group_abort(j.group, status); /* stops the peers immediately, with this message */
    }
    const int code = status == FSDP_OK ? 0 : j.options ? 1 : 2; /* 2 for misuse, as in argparse */
    cleanup(&j);
    return code;
}
