/* Derives the values that were not given from those that were given, and translates options that
 * are spelled as in other tools, such as Accelerate and torchtitan. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "src/base/io.h"
#include "src/data/arrow/folder.h"
#include "src/data/files/data_paths.h"
#include "src/data/files/split_names.h"
#include "src/fsdp/reshard_menu.h"
#include "src/train_config/config_derive.h"
#include "src/train_config/config_device.h"
#include "src/train_config/config_float8.h"
#include "src/train_config/config_parallelism.h"
#include "src/train_config/config_trainer.h"
#include "src/train_config/precision.h"

void fsdp_train_complete(fsdp_train_config *c, fsdp_task task)
{
    if (isnan(c->lr) && c->relative_step)
        c->lr = 0; /* the optimizer chooses the rate */
    else if (isnan(c->lr))
        c->lr = task == FSDP_TASK_SEQ2SEQ ? 0.002 : 2e-5;
    if (c->min_lr_rate > 0)
        c->min_lr = c->min_lr_rate * c->lr;
    /* With --source-lang, the task is translation. The default prefix of seq2seq is for summaries,
     * so no prefix is used. */
    if (!c->task_prefix)
        c->task_prefix = c->form.source_lang ? "" : fsdp_train_task_prefix(task);
}

void fsdp_train_complete_schedule(fsdp_train_config *c, fsdp_task task)
{
    if (!c->schedule_by_task || task == FSDP_TASK_SEQ2SEQ)
        return;
    c->lr_schedule = task == FSDP_TASK_CAUSAL_LM ? FSDP_LR_COSINE : FSDP_LR_LINEAR;
    c->schedule_unit = FSDP_SCHEDULE_STEP;
}

bool fsdp_train_given_task(const fsdp_train_config *c, fsdp_task *task)
{
    *task = fsdp_train_model_task(c->task);
    return c->task != FSDP_TRAIN_AUTO;
}

/* Derive the wrap policy. `accelerate launch` exports the options of all wrap policies as
 * environment variables. So reset the options of the policies that were not chosen, if they come
 * from the environment. */
static void derive_wrapping(fsdp_train_config *c, const fsdp_options *options)
{
    const fsdp_option_origin policy = fsdp_options_origin(options, "auto-wrap-policy");
    /* The policy may come from the environment, while a flag or a file gives an option of another
     * policy. The flag or the file takes precedence, so the run gets that other policy. */
    if (policy == FSDP_ORIGIN_ENV && c->min_num_params > 0 &&
        fsdp_options_origin(options, "min-num-params") > policy)
        c->auto_wrap_policy = FSDP_AUTO_WRAP_SIZE_BASED;
    if (policy == FSDP_ORIGIN_ENV && c->transformer_layer_cls_to_wrap.count &&
        fsdp_options_origin(options, "transformer-layer-cls-to-wrap") > policy)
        c->auto_wrap_policy = FSDP_AUTO_WRAP_TRANSFORMER_BASED;
    if (!fsdp_options_given(options, "auto-wrap-policy") && c->min_num_params > 0 &&
        fsdp_train_set_by_user(options, "min-num-params"))
        c->auto_wrap_policy = FSDP_AUTO_WRAP_SIZE_BASED;
    if (c->auto_wrap_policy != FSDP_AUTO_WRAP_SIZE_BASED &&
        !fsdp_train_set_by_user(options, "min-num-params"))
        c->min_num_params = 0;
    if (c->auto_wrap_policy != FSDP_AUTO_WRAP_TRANSFORMER_BASED &&
        !fsdp_train_set_by_user(options, "transformer-layer-cls-to-wrap"))
        c->transformer_layer_cls_to_wrap = (fsdp_option_list){0};
}

/* Return the variant of `strategy` that reshards parameters after forward if `on` is true, or the
 * variant that keeps them gathered if `on` is false. NO_SHARD has no variants and is returned
 * unchanged. */
static int with_reshard(int strategy, bool on)
{
    if (strategy == FSDP_SHARDING_NO_SHARD)
        return strategy;
    if (fsdp_sharding_is_hybrid(strategy))
        return on ? FSDP_SHARDING_HYBRID_SHARD : FSDP_SHARDING_HYBRID_SHARD_ZERO2;
    return on ? FSDP_SHARDING_FULL_SHARD : FSDP_SHARDING_SHARD_GRAD_OP;
}

static bool is_fsdp1(const fsdp_options *options)
{
    const char *version = fsdp_options_text(options, "fsdp-version");
    return version && strcmp(version, "1") == 0;
}

/* Return true if the user probably did not choose the value of --reshard-after-forward. For FSDP1,
 * `accelerate launch` always exports this option, with the value `true` unless the user chose a
 * strategy's name. So the result is true if the option's value is `true` and comes from the
 * environment, and the FSDP version is 1. */
static bool reshard_is_only_exported(const fsdp_options *options)
{
    const char *reshard = fsdp_options_text(options, "reshard-after-forward");
    return fsdp_options_origin(options, "reshard-after-forward") == FSDP_ORIGIN_ENV &&
           is_fsdp1(options) && reshard && strcasecmp(reshard, "true") == 0;
}

/* Return true if --reshard-after-forward takes precedence over --sharding-strategy. There are two
 * such cases. First, its source takes precedence over the source of the strategy, for example a
 * flag over a file. Second, both values come from the environment, and the user chose the value of
 * --reshard-after-forward (see reshard_is_only_exported()). In this case the user may not have
 * chosen the strategy, because `accelerate launch` always exports one. */
static bool reshard_decides(const fsdp_options *options)
{
    const fsdp_option_origin strategy = fsdp_options_origin(options, "sharding-strategy");
    const fsdp_option_origin reshard = fsdp_options_origin(options, "reshard-after-forward");
    return reshard > strategy || (reshard == strategy && reshard == FSDP_ORIGIN_ENV &&
                                  !reshard_is_only_exported(options));
}

/* In Accelerate's files and variables for FSDP1, reshard_after_forward may be a number: that of a
 * strategy in Accelerate's menu. Replace this number by the strategy. In a flag, it is a number of
 * ranks instead, and is not changed. */
static void derive_menu_number(fsdp_train_config *c, const fsdp_options *options)
{
    if (is_fsdp1(options) &&
        fsdp_options_origin(options, "reshard-after-forward") != FSDP_ORIGIN_FLAG)
        c->reshard_after_forward = fsdp_reshard_of_menu(
            fsdp_options_text(options, "reshard-after-forward"), c->reshard_after_forward);
}

/* Set sharding_strategy and reshard_after_forward if the value of --reshard-after-forward is the
 * name of a strategy. Accelerate with FSDP version 1 passes such a name. The option parser has then
 * stored the negative number `-1 - strategy` in reshard_after_forward. Set sharding_strategy to the
 * named strategy, and reshard_after_forward to 0 or 1. */
static void derive_strategy(fsdp_train_config *c, const fsdp_options *options)
{
    const int word = -1 - c->reshard_after_forward;
    if (word < 0)
        return;
    if (reshard_decides(options))
        c->sharding_strategy = word;
    c->reshard_after_forward = fsdp_train_reshards(word);
}

/* Derive the strategy from --shard-size and --replicas. torchtitan has these two options and no
 * option for the strategy. `--shard-size -1` means that the shard size is the number of ranks
 * divided by --replicas. The value -1 is stored as 0. */
static void derive_replicas(fsdp_train_config *c, const fsdp_options *options)
{
    fsdp_train_derive_parallelism(c, options);
    if (c->shard_size < 0)
        c->shard_size = 0;
    if (!fsdp_options_given(options, "sharding-strategy") && (c->shard_size || c->replicas > 1))
        c->sharding_strategy = with_reshard(FSDP_SHARDING_HYBRID_SHARD, c->reshard_after_forward);
    if (c->replicas == 1 && !c->shard_size && !fsdp_sharding_is_hybrid(c->sharding_strategy))
        c->replicas = 0;
}

/* Complete the options for explicit prefetching. If a depth is set, --explicit-prefetching is on by
 * default. If --explicit-prefetching is on and no depth was given, set both depths to
 * TUTORIAL_DEPTH, as in the FSDP2 tutorial. */
static void derive_prefetch(fsdp_train_config *c, const fsdp_options *options)
{
    enum {
        TUTORIAL_DEPTH = 2
    };
    const bool forward = fsdp_options_given(options, "forward-prefetch-depth");
    const bool backward = fsdp_options_given(options, "backward-prefetch-depth");
    if (!fsdp_options_given(options, "explicit-prefetching"))
        c->explicit_prefetching = c->forward_prefetch_depth || c->backward_prefetch_depth;
    if (!c->explicit_prefetching || forward || backward)
        return;
    c->forward_prefetch_depth = c->backward_prefetch_depth = TUTORIAL_DEPTH;
}

/* Derive the kind of forward prefetching and the mode of gradient accumulation. `--forward-prefetch
 * false` on the command line turns forward prefetching off: no unit is gathered ahead of time. In a
 * file or an environment variable, the value false is meant for FSDP1, which gathers the next unit
 * ahead of time even with forward_prefetch=False. So false is ignored there (false_is_silence in
 * include/fsdp/options.h). */
static void derive_overlap(fsdp_train_config *c, const fsdp_options *options)
{
    const bool given = fsdp_options_given(options, "forward-prefetch");
    c->forward_prefetch_kind = c->forward_prefetch ? FSDP_FORWARD_STRICT
                               : given             ? FSDP_FORWARD_NONE
                                                   : FSDP_FORWARD_IMPLICIT;
    if (!fsdp_options_given(options, "gradient-accumulation-mode") && !c->sync_each_batch)
        c->accumulation_mode = FSDP_ACCUMULATION_NO_SYNC;
    if (!fsdp_options_given(options, "sync-each-batch"))
        c->sync_each_batch = c->accumulation_mode == FSDP_ACCUMULATION_REDUCE;
}

bool fsdp_train_says_checkpointing(const fsdp_train_config *c)
{
    return c->activation_checkpointing_every > 1 ||
           c->activation_checkpointing_kind != FSDP_CHECKPOINT_FULL || c->activation_offload;
}

/* Turn activation checkpointing on if another option needs it. If the user gave
 * --activation-checkpointing false, do not turn it on. But `accelerate launch` exports
 * FSDP_ACTIVATION_CHECKPOINTING=false even if the user did not choose it. So if the value false
 * comes from the environment and the other option from a flag or a file, ignore the value false. */
static void derive_checkpointing(fsdp_train_config *c, const fsdp_options *options)
{
    static const char *const needing[] = {"activation-checkpointing-every",
                                          "activation-checkpointing-kind", "activation-offload"};
    fsdp_option_origin strongest = FSDP_ORIGIN_DEFAULT;
    for (size_t i = 0; i < sizeof needing / sizeof *needing; i++)
        if (fsdp_options_origin(options, needing[i]) > strongest)
            strongest = fsdp_options_origin(options, needing[i]);
    const fsdp_option_origin own = fsdp_options_origin(options, "activation-checkpointing");
    if (fsdp_train_says_checkpointing(c) &&
        (own == FSDP_ORIGIN_DEFAULT || (own == FSDP_ORIGIN_ENV && strongest > FSDP_ORIGIN_ENV)))
        c->activation_checkpointing = true;
}

static bool is_word(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcasecmp(text, *words) == 0)
            return true;
    return false;
}

static void derive_checkpoints(fsdp_train_config *c, const fsdp_options *options)
{
    static const char *const no[] = {"false", "no", "off", "0", "", NULL};
    static const char *const newest[] = {"true", "yes", "on", "1", "auto", "latest", NULL};
    if (!fsdp_options_given(options, "save-strategy") && c->save_steps > 0)
        c->save_strategy = FSDP_SAVE_STEPS;
    if (c->save_strategy == FSDP_SAVE_STEPS && !fsdp_options_given(options, "save-steps"))
        c->save_steps = 500; /* transformers' default */
    if (c->resume && is_word(c->resume, no))
        c->resume = NULL;
    if (c->resume && is_word(c->resume, newest))
        c->resume = c->checkpoint ? c->checkpoint : "auto";
}

/* Derive the learning rate schedule. Some training scripts have no option for the schedule: their
 * --lr-decay turns the cosine schedule on, and their --min-lr is the final learning rate. */
static void derive_schedule(fsdp_train_config *c, const fsdp_options *options)
{
    static const char *const of_steps[] = {"gamma", "step-size", "schedule-unit"};
    const bool given = fsdp_options_given(options, "lr-schedule");
    c->schedule_by_task = !given && !fsdp_options_given(options, "lr-decay") && c->min_lr <= 0 &&
                          c->min_lr_rate <= 0 && !c->relative_step;
    const bool free = c->schedule_by_task && c->optimizer == FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW;
    for (size_t i = 0; i < sizeof of_steps / sizeof *of_steps; i++)
        c->schedule_by_task &= !fsdp_options_asked_for(options, of_steps[i]);
    c->given_lr_decay = c->lr_decay;
    if (!given && fsdp_options_given(options, "lr-decay"))
        c->lr_schedule = c->lr_decay ? FSDP_LR_COSINE : FSDP_LR_CONSTANT;
    else if (!given && (c->min_lr > 0 || c->min_lr_rate > 0))
        c->lr_schedule = FSDP_LR_COSINE;
    if (free) {
        c->lr_schedule = FSDP_LR_CONSTANT;
        c->schedule_by_task = false;
    }
    c->lr_decay = c->lr_schedule != FSDP_LR_CONSTANT;
    if (c->lr_schedule == FSDP_LR_POLYNOMIAL && !fsdp_options_given(options, "min-lr") &&
        c->min_lr_rate <= 0)
        c->min_lr = 1e-7; /* transformers' lr_end */
    if (!fsdp_options_given(options, "schedule-unit"))
        c->schedule_unit =
            c->lr_schedule == FSDP_LR_STEP ? FSDP_SCHEDULE_EPOCH : FSDP_SCHEDULE_STEP;
}

static void derive_given(fsdp_train_config *c, const fsdp_options *options)
{
    c->cut_sources = fsdp_options_given(options, "max-source-length");
    c->cut_targets = fsdp_options_given(options, "max-target-length");
    c->asked_for.task_prefix = fsdp_options_asked_for(options, "task-prefix");
    c->given_task_prefix = fsdp_options_given(options, "task-prefix");
    c->asked_for.text_column = fsdp_options_asked_for(options, "text-column");
    c->asked_for.target_column = fsdp_options_asked_for(options, "target-column");
    fsdp_chat_row_options_derive(&c->chat, options);
    c->asked_for.max_source_length = fsdp_options_asked_for(options, "max-source-length");
    c->asked_for.max_target_length = fsdp_options_asked_for(options, "max-target-length");
}

/* Derive form.cleaning and wikihow_cleaning from each other: --wikihow-cleaning is another spelling
 * of --cleaning wikihow. */
static void derive_cleaning(fsdp_train_config *c, const fsdp_options *options)
{
    if (!fsdp_options_given(options, "cleaning") && c->wikihow_cleaning)
        c->form.cleaning = FSDP_CLEANING_WIKIHOW;
    if (!fsdp_options_given(options, "wikihow-cleaning"))
        c->wikihow_cleaning = c->form.cleaning == FSDP_CLEANING_WIKIHOW;
}

/* Look in `folder` for a file of rows named `name`.jsonl, or `name` with another ending, and write
 * its path to `path` [1024]. Return false if there is no such file. */
static bool find_rows(const char *folder, const char *name, char path[1024])
{
    static const char *const endings[] = {".jsonl",     ".json",    ".csv",    ".tsv",
                                          ".jsonl.gz",  ".json.gz", ".csv.gz", ".tsv.gz",
                                          ".jsonl.zst", ".txt"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const int n = snprintf(path, 1024, "%.*s/%s%s", (int)fsdp_path_length(folder), folder, name,
                               endings[i]);
        if (n > 0 && n < 1024 && fsdp_path_is_file(path))
            return true;
    }
    *path = 0;
    return false;
}

/* If the folder `data` has a file train.* and a file such as validation.*, use these files as the
 * training rows and the validation rows. If the folder has further files of one of these splits,
 * such as train_part2.*, use all files of this split that are in the folder. */
static void derive_files(fsdp_train_config *c)
{
    *c->train_file = *c->validation_file = 0;
    if (!find_rows(c->data, "train", c->train_file))
        return;
    for (size_t i = 0; fsdp_validation_name(i) && !*c->validation_file; i++)
        find_rows(c->data, fsdp_validation_name(i), c->validation_file);
    if (!*c->validation_file)
        return;
    const char *folder = c->data;
    c->data = fsdp_split_has_another_file(folder, c->train_file, false) ? folder : c->train_file;
    c->validation_data =
        fsdp_split_has_another_file(folder, c->validation_file, true) ? folder : c->validation_file;
}

/* Write the path of the folder `name` in `folder` to `path` [1024]. Return false if there is no
 * such folder. */
static bool find_folder(const char *folder, const char *name, char path[1024])
{
    const int n = snprintf(path, 1024, "%.*s/%s", (int)fsdp_path_length(folder), folder, name);
    if (n > 0 && n < 1024 && fsdp_path_is_directory(path))
        return true;
    *path = 0;
    return false;
}

/* If the folder `data` has a folder train and a folder such as validation, use these folders as the
 * training rows and the validation rows. */
static void derive_folders(fsdp_train_config *c)
{
    *c->train_file = *c->validation_file = 0;
    if (!find_folder(c->data, "train", c->train_file))
        return;
    for (size_t i = 0; fsdp_validation_name(i) && !*c->validation_file; i++)
        find_folder(c->data, fsdp_validation_name(i), c->validation_file);
    if (!*c->validation_file)
        return;
    c->data = c->train_file;
    c->validation_data = c->validation_file;
}

typedef fsdp_status list_files(const char *path, bool validation, fsdp_path_list *list);

/* Return true if the folder `data` has files for training, and also other files for validation. The
 * names of the files show what they are for. */
static bool has_both(const char *data, list_files *list)
{
    fsdp_path_list train = {0}, validation = {0};
    const bool both =
        list(data, false, &train) == FSDP_OK && list(data, true, &validation) == FSDP_OK;
    const bool differ = both && strcmp(train.items[0], validation.items[0]) != 0;
    fsdp_path_list_fini(&train);
    fsdp_path_list_fini(&validation);
    return differ;
}

/* If no rows for validation are given, find them in `data`: in a DatasetDict, in files or folders
 * called train and validation, or in files whose names have such a word. */
static void derive_validation(fsdp_train_config *c)
{
    if (c->validation_data || !c->data)
        return;
    if (fsdp_arrow_has_validation(c->data)) {
        c->validation_data = c->data;
    } else if (fsdp_path_is_directory(c->data) && !fsdp_is_arrow_path(c->data)) {
        derive_files(c);
        if (!c->validation_data)
            derive_folders(c);
        if (!c->validation_data &&
            (has_both(c->data, fsdp_token_paths) || has_both(c->data, fsdp_text_paths)))
            c->validation_data = c->data;
    }
    c->found_validation = c->validation_data != NULL;
    c->splits_data = !c->validation_data && c->validation_split_percentage > 0;
    if (c->splits_data)
        c->validation_data = c->data;
}

/* Set the options that were not given to the defaults of torch.optim.Muon. */
static void derive_muon(fsdp_train_config *c, const fsdp_options *options)
{
    if (!fsdp_options_given(options, "weight-decay"))
        c->weight_decay = 0.1;
    if (!fsdp_options_given(options, "momentum"))
        c->momentum = 0.95;
    if (!fsdp_options_given(options, "nesterov"))
        c->nesterov = true;
}

/* Compute the values that were not given, and translate options of other tools into this project's
 * options. */
void fsdp_train_config_derive(void *config, const fsdp_options *options)
{
    fsdp_train_config *c = config;
    fsdp_task task;
    c->options = options;
    c->parsed_bytes = sizeof *c;
    derive_given(c, options);
    fsdp_accelerate_keys_of_file(options, c->sharding_strategy, c->reshard_after_forward,
                                 &c->file_keys);
    derive_validation(c);
    fsdp_form_options_derive(&c->form, options);
    derive_cleaning(c, options);
    fsdp_train_derive_device(c, options);
    fsdp_train_derive_spellings(c, options);
    c->relative_step &= c->optimizer == FSDP_OPTIMIZER_ADAFACTOR;
    if (fsdp_train_given_task(c, &task))
        fsdp_train_complete(c, task);
    derive_schedule(c, options);
    if (fsdp_train_given_task(c, &task))
        fsdp_train_complete_schedule(c, task);
    if (c->optimizer != FSDP_OPTIMIZER_ADAMW && c->optimizer != FSDP_OPTIMIZER_ADAMW_8BIT &&
        !fsdp_options_given(options, "weight-decay"))
        c->weight_decay = 0;
    if (c->optimizer == FSDP_OPTIMIZER_MUON)
        derive_muon(c, options);
    if (!c->validation_data && !fsdp_options_given(options, "run-validation"))
        c->run_validation = false;
    fsdp_train_derive_strategies(c, options);
    if (c->tutorial_loss && !fsdp_options_given(options, "loss-reduction"))
        c->loss_reduction = FSDP_LOSS_MEAN_OF_MEANS;
    fsdp_train_precision_derive(c, options);
    fsdp_train_float8_derive(c, options);
    derive_wrapping(c, options);
    derive_checkpointing(c, options);
    derive_overlap(c, options);
    derive_prefetch(c, options);
    derive_checkpoints(c, options);
    fsdp_train_derive_fsdp(c, options);
    derive_menu_number(c, options);
    derive_strategy(c, options);
    if (reshard_decides(options))
        c->sharding_strategy = with_reshard(c->sharding_strategy, c->reshard_after_forward);
    else if (fsdp_options_origin(options, "sharding-strategy") >
                 fsdp_options_origin(options, "reshard-after-forward") ||
             reshard_is_only_exported(options))
        c->reshard_after_forward = fsdp_train_reshards(c->sharding_strategy);
    derive_replicas(c, options);
}
