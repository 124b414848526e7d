/* Continual pretraining of a Llama with Lightning Fabric's FSDP strategy, as GPLSI's tutorial
 * "Fully Sharded Data Parallel (FSDP)" does it, in C. Instead of
 *
 *     python train.py            with the arguments in arguments.py
 *
 * run
 *
 *     build/examples/llama_continual --devices 4 \
 *         --train_data_dir DIR --model_name meta-llama/Meta-Llama-3-8B
 *
 * which starts 4 ranks with `fsdp launch`. To give `fsdp launch` other options, call it yourself:
 * fsdp launch -n 4 build/examples/llama_continual --devices 4 ...
 *
 * DIR is a folder of datasets.save_to_disk() with the splits train and validation, or a folder with
 * train.jsonl and validation.jsonl. Rows have input_ids. Arguments have the names and the defaults
 * of arguments.py. What the program writes: checkpoints/step-N.pt, the model and the optimizer
 * after N optimizer steps, and at the end a Hugging Face folder, --output. Start reading at
 * fabric_main() at the end. FSDP_TRY() returns from a function if the call fails; main() prints the
 * reason.
 *
 * `fsdp train` runs the same job without a program: it has the same arguments. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fsdp.h>

/* ---- arguments ------------------------------------------------------------------------------- */

typedef struct arguments {
    int devices, micro_batch_size, gradient_accumulation_steps, number_epochs, eval_batch_size;
    int64_t max_step, warmup_steps, eval_iters, eval_step_interval, save_step_interval;
    double grad_clip, lr, min_lr, weight_decay, beta1, beta2;
    const char *train_data_dir, *model_name, *auto_wrap_policy, *checkpoint, *output;
    int precision, sharding_strategy; /* indices of the choices */
    bool limit_all_gathers, cpu_offload, resume, lr_decay, from_config;
} arguments;

enum {
    BF16_TRUE, /* weights in bfloat16; gradients and the optimizer's state in float32 */
    BF16_MIXED,
    TRUE_32
};
static const char *const precisions[] = {"bf16-true", "bf16-mixed", "32-true", NULL};

#define ADD(flag, kind, field, preset, text)                                                       \
    .name = flag, .type = FSDP_OPTION_##kind, .offset = offsetof(arguments, field),                \
    .value = preset, .help = text
#define N .bounds = FSDP_AT_LEAST(1), .metavar = "N"
#define N_OR_0 .bounds = FSDP_AT_LEAST(0), .metavar = "N"
#define X .bounds = FSDP_AT_LEAST(0), .metavar = "X"
static const fsdp_option flags[] = {
    {ADD("devices", INT, devices, "4", "number of ranks, which are started"), N},
    {ADD("train_data_dir", STRING, train_data_dir, NULL, "training and validation rows"),
     .required = true},
    {ADD("model_name", STRING, model_name, "meta-llama/Meta-Llama-3-8B", "a folder, or a name")},
    {ADD("from_config", BOOL, from_config, "false", "random weights: only config.json is read")},
    {ADD("precision", CHOICE, precision, "bf16-true", "precision"), .choices = precisions},
    {ADD("auto_wrap_policy", STRING, auto_wrap_policy, "LlamaDecoderLayer", "class of the units")},
    {ADD("sharding_strategy", CHOICE, sharding_strategy, "FULL_SHARD", "what is sharded"),
     .choices = fsdp_sharding_strategy_choices},
    {ADD("limit_all_gathers", BOOL, limit_all_gathers, "true", "gather at most two units ahead")},
    {ADD("cpu_offload", BOOL, cpu_offload, "false", "keep the shards in the host's memory")},
    {ADD("resume", BOOL, resume, "false", "continue from --checkpoint")},
    {ADD("checkpoint", STRING, checkpoint, NULL, "step-N.pt")},
    {ADD("number_epochs", INT, number_epochs, "2", "epochs to train"), N},
    {ADD("micro_batch_size", INT, micro_batch_size, "1", "rows of a rank in a micro-batch"), N},
    {ADD("gradient_accumulation_steps", INT, gradient_accumulation_steps, "64", "micro-batches"),
     N},
    {ADD("grad_clip", DOUBLE, grad_clip, "1.0", "largest norm of the gradients; 0: any"), X},
    {ADD("max_step", INT64, max_step, "6145", "steps until the rate is min_lr, and the run ends"),
     N},
    {ADD("lr", DOUBLE, lr, "2e-5", "learning rate"), X},
    {ADD("min_lr", DOUBLE, min_lr, "2e-5", "last learning rate"), X},
    {ADD("lr_decay", BOOL, lr_decay, "true", "let the rate decay")},
    {ADD("warmup_steps", INT64, warmup_steps, "0", "steps in which the rate rises"), N_OR_0},
    {ADD("weight_decay", DOUBLE, weight_decay, "0.01", "weight decay"), X},
    {ADD("beta1", DOUBLE, beta1, "0.9", "beta1 of Adam"), X},
    {ADD("beta2", DOUBLE, beta2, "0.95", "beta2 of Adam"), X},
    {ADD("eval_batch_size", INT, eval_batch_size, "1", "rows of a rank in validation"), N},
    {ADD("eval_iters", INT64, eval_iters, "1000000", "most batches of a validation"), N},
    {ADD("eval_step_interval", INT64, eval_step_interval, "500", "steps between validations"), N},
    {ADD("save_step_interval", INT64, save_step_interval, "1000", "steps between checkpoints"), N},
    {ADD("output", STRING, output, "output", "folder for the trained model")},
};
static const fsdp_options_spec parser = {.program = "llama_continual",
                                         .usage = "--train_data_dir DIR [options]",
                                         .summary = "Continual pretraining of a Llama.",
                                         .table = flags,
                                         .count = sizeof flags / sizeof *flags};

typedef struct job {
    arguments args;
    fsdp_options *options;
    int rank, world_size;
    fsdp_group *group;
    fsdp_device *device;
    fsdp_pretrained pretrained;
    fsdp_dataset *train_dataset, *val_dataset;
    fsdp_loader *train_loader, *val_loader;
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_parameter_list parameters;
    fsdp_lr_schedule schedule;
    /* step: optimizer steps so far. first_step: steps that the run had done before --resume. */
    int64_t step, first_step;
    int64_t last_validation; /* step of the last validation */
    int64_t last_save;       /* step of the last checkpoint */
    double sum_loss;         /* over the micro-batches of this step */
} job;

#define PRINT(...) (void)(j->rank == 0 && printf(__VA_ARGS__))

/* ---- setup ----------------------------------------------------------------------------------- */

/* Return true if a launcher has started this process. */
static bool is_launched(void)
{
    static const char *const names[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return true;
    return false;
}

/* Fabric starts the processes by itself, unless a launcher has done it. Do the same: replace this
 * process by `fsdp launch -n DEVICES PROGRAM ...`. The command `fsdp` is expected in the folder
 * above that of the program, as in a build, or in $PATH. `--config_file none` keeps it from reading
 * Accelerate's default configuration file. This function returns only if the ranks are started
 * already, if there is only one, or on error. */
static fsdp_status start_ranks(const job *j, int argc, char **argv)
{
    char program[4096], fsdp[4110], number[16];
    if (j->args.devices < 2 || is_launched())
        return FSDP_OK;
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char **words = calloc((size_t)argc + 7, sizeof *words);
    if (n < 0 || !words) {
        free(words);
        return fsdp_error(FSDP_ERR_IO,
                          "--devices %d: the path of this program is not known: start "
                          "it with fsdp launch -n %d",
                          j->args.devices, j->args.devices);
    }
    program[n] = '\0';
    snprintf(fsdp, sizeof fsdp, "%s", program);
    snprintf(strrchr(fsdp, '/'), 10, "/../fsdp");
    snprintf(number, sizeof number, "%d", j->args.devices);
    char launch[] = "launch", flag[] = "-n", file[] = "--config_file", none[] = "none";
    char *added[] = {access(fsdp, X_OK) == 0 ? fsdp : strrchr(fsdp, '/') + 1,
                     launch,
                     flag,
                     number,
                     file,
                     none,
                     program};
    memcpy(words, added, sizeof added);
    memcpy(words + 7, argv + 1, (size_t)(argc - 1) * sizeof *words);
    printf("--devices %d: starting %d ranks with fsdp launch\n", j->args.devices, j->args.devices);
    fflush(stdout);
    execvp(words[0], words);
    free(words);
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "--devices %d needs the command fsdp, which is neither %s nor in $PATH",
                      j->args.devices, fsdp);
}

/* fabric = L.Fabric(devices=args.devices, strategy=FSDPStrategy(...)) */
static fsdp_status setup(job *j)
{
    FSDP_TRY(fsdp_init_process_group(NULL, &j->group));
    j->rank = fsdp_group_rank(j->group);
    j->world_size = fsdp_group_world_size(j->group);
    if (j->rank == 0 && j->world_size != j->args.devices)
        fprintf(stderr, "llama_continual: %d ranks, not --devices %d: fsdp launch -n %d\n",
                j->world_size, j->args.devices, j->args.devices);
    return fsdp_default_device(j->group, &j->device);
}

/* If the folder has files of JSON lines, train.jsonl and validation.jsonl, write the path of this
 * split's file to `path`, and set *split to ALL. Else `path` is the folder. */
static void find_split(const job *j, fsdp_split *split, char path[4200])
{
    const char *name = *split == FSDP_SPLIT_TRAIN ? "train" : "validation";
    snprintf(path, 4200, "%s/%s.jsonl", j->args.train_data_dir, name);
    if (access(path, R_OK) == 0)
        *split = FSDP_SPLIT_ALL;
    else
        snprintf(path, 4200, "%s", j->args.train_data_dir);
}

static fsdp_status open_split(const job *j, fsdp_split split, bool shuffle, int batch_size,
                              fsdp_dataset **set, fsdp_loader **loader)
{
    char path[4200];
    find_split(j, &split, path);
    const fsdp_model_info info = fsdp_model_config_info(&j->pretrained.config);
    const fsdp_dataset_options rows = {.task = info.format.task,
                                       .split = split,
                                       .max_length = info.max_positions,
                                       .vocab_size = info.vocab_size};
    const fsdp_loader_options options = {.sampler = {.batch_size = batch_size,
                                                     .rank = j->rank,
                                                     .world_size = j->world_size,
                                                     .no_shuffle = !shuffle,
                                                     .seed = 1},
                                         .format = info.format,
                                         .num_workers = 2};
    FSDP_TRY(fsdp_dataset_open(path, &rows, set));
    return fsdp_loader_create(*set, &options, loader);
}

/* Return an error if an epoch has no step, because a rank has fewer micro-batches than a step
 * accumulates. The model would be saved untrained. */
static fsdp_status check_steps(const job *j)
{
    const arguments *a = &j->args;
    const long long micro_batches = (long long)fsdp_loader_steps(j->train_loader);
    return micro_batches >= a->gradient_accumulation_steps
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_INVALID,
                            "--gradient_accumulation_steps %d: an epoch has only %lld "
                            "micro-batches of a rank (%lld rows, %d ranks, --micro_batch_size %d), "
                            "so it has no step: use at most %lld, or more rows",
                            a->gradient_accumulation_steps, micro_batches,
                            (long long)fsdp_dataset_len(j->train_dataset), j->world_size,
                            a->micro_batch_size, micro_batches);
}

static fsdp_status load_data(job *j)
{
    const arguments *a = &j->args;
    FSDP_TRY(open_split(j, FSDP_SPLIT_TRAIN, true, a->micro_batch_size, &j->train_dataset,
                        &j->train_loader));
    FSDP_TRY(open_split(j, FSDP_SPLIT_VALIDATION, false, a->eval_batch_size, &j->val_dataset,
                        &j->val_loader));
    const long long micro_batches = (long long)fsdp_loader_steps(j->train_loader);
    PRINT("%lld training rows, %lld validation rows; %lld micro-batches of a rank in an epoch\n",
          (long long)fsdp_dataset_len(j->train_dataset),
          (long long)fsdp_dataset_len(j->val_dataset), micro_batches);
    PRINT("max_step x gradient_accumulation_steps = %lld; micro-batches x epochs = %lld\n",
          (long long)a->max_step * a->gradient_accumulation_steps,
          micro_batches * a->number_epochs);
    return check_steps(j);
}

/* model = fabric.setup(AutoModelForCausalLM.from_pretrained(...)): each decoder layer is a unit.
 * The weights are loaded after sharding, so no rank allocates the whole model. */
static fsdp_status setup_model(job *j)
{
    const arguments *a = &j->args;
    const bool half = a->precision != TRUE_32;
    const char *const layers[] = {a->auto_wrap_policy, NULL};
    const fsdp_wrap_policy policy = {.kind = FSDP_WRAP_TRANSFORMER,
                                     .transformer_layer_cls = layers};
    const bool zero2 = a->sharding_strategy == FSDP_SHARDING_SHARD_GRAD_OP;
    const fsdp_fully_shard_options options = {
        .mp_policy = {.param_dtype = half ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32,
                      .master_dtype = a->precision == BF16_TRUE ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32},
        .reshard_after_forward = zero2 ? FSDP_RESHARD_FALSE : FSDP_RESHARD_DEFAULT,
        .no_shard = a->sharding_strategy == FSDP_SHARDING_NO_SHARD,
        .no_limit_all_gathers = !a->limit_all_gathers,
        .offload_policy = {.kind = a->cpu_offload ? FSDP_OFFLOAD_CPU : FSDP_OFFLOAD_NONE}};
    if (a->sharding_strategy > FSDP_SHARDING_NO_SHARD)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--sharding_strategy: this program has FULL_SHARD, SHARD_GRAD_OP and "
                          "NO_SHARD; 'fsdp train' has HYBRID_SHARD");
    FSDP_TRY(fsdp_model_create(&j->pretrained.config, &j->model));
    FSDP_TRY(fsdp_auto_wrap(j->model, &policy, j->group, j->device, &options));
    FSDP_TRY(fsdp_pretrained_load(&j->pretrained, j->model, j->group, 1, NULL));
    return fsdp_module_parameters(j->model, false, &j->parameters);
}

/* optimizer = AdamW(...), and get_lr(): a warmup, then half a cosine down to min_lr. */
static fsdp_status setup_optimizer(job *j)
{
    const arguments *a = &j->args;
    fsdp_adamw_options adamw = fsdp_adamw_defaults();
    adamw.lr = a->lr;
    adamw.beta1 = a->beta1;
    adamw.beta2 = a->beta2;
    adamw.weight_decay = a->weight_decay;
    adamw.state_dtype = a->precision == BF16_TRUE ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32;
    j->schedule = (fsdp_lr_schedule){.kind = a->lr_decay ? FSDP_LR_COSINE : FSDP_LR_CONSTANT,
                                     .lr = a->lr,
                                     .min_lr = a->min_lr,
                                     .warmup_steps = a->warmup_steps,
                                     .total_steps = a->max_step};
    if (a->lr_decay && a->min_lr >= a->lr)
        PRINT("min_lr is lr, so the rate does not decay\n");
    FSDP_TRY(fsdp_lr_schedule_check(&j->schedule));
    return fsdp_adamw_create(j->model, &adamw, &j->optimizer);
}

/* ---- validation and checkpoints -------------------------------------------------------------- */

/* @torch.no_grad() validate(): the mean loss of at most eval_iters batches of each rank. */
static fsdp_status validate(job *j)
{
    double sums[2] = {0};
    if (j->last_validation == j->step)
        return FSDP_OK; /* an interval and an epoch end at the same step */
    j->last_validation = j->step;
    fsdp_loader_set_epoch(j->val_loader, 0);
    for (int64_t i = 0; i < j->args.eval_iters; i++) {
        const fsdp_forward_backward_options options = {.training = false};
        fsdp_batch *batch;
        double loss = 0;
        FSDP_TRY(fsdp_loader_next(j->val_loader, &batch));
        if (!batch)
            break;
        const fsdp_status status =
            fsdp_forward_backward(j->model, j->device, batch, &options, &loss);
        sums[0] += loss * batch->label_tokens;
        sums[1] += batch->label_tokens;
        fsdp_batch_release(batch);
        FSDP_TRY(status);
    }
    FSDP_TRY(fsdp_all_reduce(j->group, sums, 2, FSDP_DTYPE_F64, FSDP_REDUCE_SUM));
    PRINT("step %lld: validation loss %.4f\n", (long long)j->step, sums[0] / sums[1]);
    return FSDP_OK;
}

static void checkpoint_names(const char *path, char model[512], char optimizer[512])
{
    snprintf(model, 512, "%s", path);
    snprintf(optimizer, 512, "%s.optimizer", path);
}

/* fabric.save(): state_dict_type="full". The tensors are gathered one after another, and rank 0
 * writes them; torch.load() can read the files. The optimizer's file is written first. So each
 * step-N.pt can be continued with --checkpoint, even if the program was killed during a save. */
static fsdp_status save_checkpoint(job *j)
{
    char path[256], model_path[512], optimizer_path[512];
    fsdp_state_dict *model, *optimizer;
    snprintf(path, sizeof path, "checkpoints/step-%lld.pt", (long long)j->step);
    checkpoint_names(path, model_path, optimizer_path);
    FSDP_TRY(fsdp_get_state_dict(j->model, j->optimizer, NULL, &model, &optimizer));
    fsdp_status status = fsdp_torch_save(optimizer, optimizer_path, j->group);
    if (status == FSDP_OK)
        status = fsdp_torch_save(model, model_path, j->group);
    fsdp_state_dict_destroy(model);
    fsdp_state_dict_destroy(optimizer);
    FSDP_TRY(status);
    j->last_save = j->step;
    PRINT("saved %s\n", path);
    return FSDP_OK;
}

/* Rank 0 reads the file, and the other ranks get their parts of it. */
static fsdp_status load_into(const job *j, const char *path, bool optimizer)
{
    const fsdp_state_dict_options options = {
        .group = j->group, .full_state_dict = true, .broadcast_from_rank0 = true};
    fsdp_state_dict *full;
    FSDP_TRY(j->rank == 0 ? fsdp_torch_load(path, j->device, &full)
                          : fsdp_state_dict_create(&full));
    const fsdp_status status =
        optimizer ? fsdp_set_optimizer_state_dict(j->model, j->optimizer, full, &options)
                  : fsdp_set_model_state_dict(j->model, full, &options, NULL);
    fsdp_state_dict_destroy(full);
    return status;
}

/* Return the number of steps of the whole run. */
static int64_t total_steps(const job *j)
{
    const arguments *a = &j->args;
    const int64_t epoch = fsdp_loader_steps(j->train_loader) / a->gradient_accumulation_steps;
    const int64_t all = epoch * a->number_epochs;
    return all < a->max_step ? all : a->max_step;
}

/* Return the N of a path whose last part is step-N.pt, or -1 if it is another name. */
static int64_t step_of_path(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    const int64_t step = strtoll(name + 5, &end, 10);
    return strcmp(end, ".pt") == 0 ? step : -1;
}

static fsdp_status resume(job *j)
{
    char model[512], optimizer[512];
    const char *path = j->args.checkpoint;
    const int64_t step = path ? step_of_path(path) : -1;
    if (step < 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--resume needs --checkpoint FOLDER/step-N.pt, as this program names its "
                          "checkpoints: N is the step after which the run goes on%s%s",
                          path ? "; --checkpoint is " : "", path ? path : "");
    if (step > total_steps(j))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--checkpoint %s is of step %lld, but this run ends after step %lld "
                          "(--max_step, --number_epochs)",
                          path, (long long)step, (long long)total_steps(j));
    checkpoint_names(path, model, optimizer);
    FSDP_TRY(load_into(j, model, false));
    FSDP_TRY(load_into(j, optimizer, true));
    j->first_step = step;
    PRINT("resumed from %s\n", path);
    return FSDP_OK;
}

/* Make a folder of this run, and check that files can be written in it. */
static fsdp_status make_folder(const char *path, const char *what)
{
    if ((mkdir(path, 0777) != 0 && errno != EEXIST) || access(path, W_OK | X_OK) != 0)
        return fsdp_error(FSDP_ERR_IO, "%s %s: %s", what, path, strerror(errno));
    return FSDP_OK;
}

/* Make the folders before the training, so that no run fails when it has ended. */
static fsdp_status make_folders(const job *j)
{
    if (j->rank != 0)
        return FSDP_OK;
    FSDP_TRY(make_folder(j->args.output, "--output"));
    return make_folder("checkpoints", "the folder");
}

/* The result as a Hugging Face folder; from_pretrained() reads it. */
static fsdp_status save_model(const job *j)
{
    char from[4200], to[4200];
    const fsdp_model_config *config = &j->pretrained.config;
    snprintf(from, sizeof from, "%s/config.json", j->pretrained.dir);
    snprintf(to, sizeof to, "%s/config.json", j->args.output);
    if (j->rank == 0)
        FSDP_TRY(fsdp_model_config_write(
            config, !fsdp_model_config_info(config).tie_word_embeddings, FSDP_DTYPE_F32, from, to));
    FSDP_TRY(fsdp_barrier(j->group));
    FSDP_TRY(fsdp_module_save(j->model, j->args.output, j->group, NULL));
    PRINT("saved the model in %s\n", j->args.output);
    return FSDP_OK;
}

/* ---- training -------------------------------------------------------------------------------- */

/* After the last micro-batch of a step: clip, update, and report; validate and save at intervals.
 */
static fsdp_status end_step(job *j)
{
    const arguments *a = &j->args;
    double norm = 0, loss = j->sum_loss / a->gradient_accumulation_steps;
    float scale = 1.0f;
    if (a->grad_clip > 0)
        FSDP_TRY(fsdp_clip_grad_norm(&j->parameters, a->grad_clip, NULL, &norm, &scale));
    fsdp_optimizer_set_lr(j->optimizer, fsdp_lr_at(&j->schedule, j->step));
    FSDP_TRY(fsdp_optimizer_step(j->optimizer, scale));
    fsdp_optimizer_zero_grad(j->optimizer);
    FSDP_TRY(fsdp_all_reduce(j->group, &loss, 1, FSDP_DTYPE_F64, FSDP_REDUCE_AVG));
    j->step++;
    j->sum_loss = 0;
    PRINT("step %lld: loss %.4f, gradient norm %.3f, lr %.3g\n", (long long)j->step, loss, norm,
          fsdp_optimizer_lr(j->optimizer, 0));
    if (j->step % a->eval_step_interval == 0)
        FSDP_TRY(validate(j));
    return j->step % a->save_step_interval == 0 ? save_checkpoint(j) : FSDP_OK;
}

/* loss = model(**batch).loss / accumulation; fabric.backward(loss). Gradients are communicated in
 * each micro-step, so a rank keeps only its shard of their sum. */
static fsdp_status micro_step(job *j, const fsdp_batch *batch, int64_t i)
{
    const int n = j->args.gradient_accumulation_steps;
    const float labels = batch->label_tokens > 0 ? (float)batch->label_tokens : 1.0f;
    const fsdp_forward_backward_options options = {.training = true,
                                                   .factor = 1.0 / (double)labels / n,
                                                   .micro_step = (int)(i % n),
                                                   .n_micro_steps = n};
    double loss;
    FSDP_TRY(fsdp_forward_backward(j->model, j->device, batch, &options, &loss));
    j->sum_loss += loss * n;
    return FSDP_OK;
}

/* An epoch. Micro-batches at its end that do not fill a step are left out. A resumed run skips the
 * steps that were done. */
static fsdp_status train_epoch(job *j, int epoch)
{
    const int n = j->args.gradient_accumulation_steps;
    const int64_t steps = fsdp_loader_steps(j->train_loader) / n, first = epoch * steps;
    if (first + steps <= j->first_step) {
        j->step = first + steps;
        return FSDP_OK;
    }
    j->step = first > j->first_step ? first : j->first_step;
    fsdp_loader_seek(j->train_loader, epoch, (j->step - first) * n);
    for (int64_t i = 0; j->step < first + steps && j->step < j->args.max_step; i++) {
        fsdp_batch *batch;
        FSDP_TRY(fsdp_loader_next(j->train_loader, &batch));
        const fsdp_status status = micro_step(j, batch, i);
        fsdp_batch_release(batch);
        FSDP_TRY(status);
        if ((i + 1) % n == 0)
            FSDP_TRY(end_step(j));
    }
    PRINT("epoch %d ends\n", epoch + 1);
    return validate(j);
}

static fsdp_status fabric_main(job *j)
{
    FSDP_TRY(setup(j));
    FSDP_TRY(make_folders(j));
    FSDP_TRY(fsdp_pretrained_open(j->args.model_name, j->args.from_config, &j->pretrained));
    FSDP_TRY(load_data(j));
    FSDP_TRY(setup_model(j));
    FSDP_TRY(setup_optimizer(j));
    if (j->args.resume)
        FSDP_TRY(resume(j));
    for (int epoch = 0; epoch < j->args.number_epochs && j->step < j->args.max_step; epoch++)
        FSDP_TRY(train_epoch(j, epoch));
    if (j->last_save != j->step)
        FSDP_TRY(save_checkpoint(j));
    return save_model(j);
}

static void cleanup(job *j)
{
    fsdp_loader_destroy(j->train_loader);
    fsdp_loader_destroy(j->val_loader);
    fsdp_dataset_close(j->train_dataset);
    fsdp_dataset_close(j->val_dataset);
    fsdp_optimizer_destroy(j->optimizer);
    fsdp_parameter_list_free(&j->parameters);
    fsdp_module_destroy(j->model);
    fsdp_pretrained_close(&j->pretrained);
    fsdp_device_destroy(j->device);
    fsdp_destroy_process_group(j->group);
    fsdp_options_destroy(j->options);
}

int main(int argc, char **argv)
{
    job j = {.last_validation = -1, .last_save = -1};
    bool run = false;
    setvbuf(stdout, NULL, _IOLBF, 0);
    fsdp_status status = fsdp_parse_args(&parser, argc, argv, &j.args, &j.options, &run);
    if (status == FSDP_OK && run)
        status = start_ranks(&j, argc, argv); /* fabric.launch() */
    if (status == FSDP_OK && run)
        status = fabric_main(&j);
    if (status != FSDP_OK) {
        fsdp_error_print("llama_continual");
        if (j.group)
            fsdp_group_abort(j.group, status); /* stops the peers immediately, with this message */
    }
    const int code = status == FSDP_OK ? 0 : j.options ? 1 : 2; /* 2 for misuse, as in argparse */
    cleanup(&j);
    return code;
}
