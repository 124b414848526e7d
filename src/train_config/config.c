/* Completes the configuration of `fsdp train`: derives the values that were not given from the
 * values that were given, and checks that no values contradict each other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <fsdp/state_dict.h>

#include "src/base/io.h"
#include "src/data/arrow/folder.h"
#include "src/data/files/data_paths.h"
#include "src/data/files/split_names.h"
#include "src/fsdp/reshard_menu.h"
#include "src/options/options_parse.h"
#include "src/profile/profile.h"
#include "src/report/plot.h"
#include "src/train_config/config.h"
#include "src/train_config/config_device.h"
#include "src/train_config/config_effect.h"
#include "src/train_config/config_report.h"
#include "src/train_config/config_float8.h"
#include "src/train_config/config_lora.h"
#include "src/train_config/config_parallelism.h"
#include "src/train_config/config_paths.h"
#include "src/train_config/config_sources.h"
#include "src/train_config/config_trainer.h"
#include "src/train_config/precision.h"

/* Set the learning rate and the task prefix if they were not given. For seq2seq, the default
 * learning rate is that of the FSDP tutorial for T5. For other tasks, it is the rate that is usual
 * for Llama and BERT. */
static void complete(fsdp_train_config *c, fsdp_task task)
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

/* If no option says how the learning rate changes, choose the schedule by task. seq2seq keeps the
 * schedule of the FSDP tutorial for T5, and causal-lm gets a cosine. Classification and masked-lm
 * get a linear decay to 0, as in transformers' scripts and Accelerate's tutorial for BERT. */
static void complete_schedule(fsdp_train_config *c, fsdp_task task)
{
    if (!c->schedule_by_task || task == FSDP_TASK_SEQ2SEQ)
        return;
    c->lr_schedule = task == FSDP_TASK_CAUSAL_LM ? FSDP_LR_COSINE : FSDP_LR_LINEAR;
    c->schedule_unit = FSDP_SCHEDULE_STEP;
}

/* Return an error if an option for pairs of source and target is given, but the task is not
 * seq2seq. */
static fsdp_status check_pair_options(const fsdp_train_config *c, fsdp_task task)
{
    const char *flag =
        c->wikihow_cleaning              ? "wikihow-cleaning"
        : c->asked_for.max_source_length ? "max-source-length"
        : c->asked_for.max_target_length && c->generate_examples == 0 && !c->predict_with_generate
            /* For other tasks, --max-target-length is allowed if texts are generated, because it
             * also limits the length of these texts. */
            ? "max-target-length"
            : NULL;
    if (task == FSDP_TASK_SEQ2SEQ || !flag)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "--%s is for --task seq2seq; %s has %s", flag,
                      fsdp_train_task_name(task),
                      c->wikihow_cleaning ? "its texts as they are" : "--max-seq-length");
}

static fsdp_status check_task(const fsdp_train_config *c, fsdp_task task)
{
    FSDP_TRY(check_pair_options(c, task));
    if (c->min_lr > c->lr)
        return fsdp_error(FSDP_ERR_INVALID, "--min-lr %g is above --lr %g", c->min_lr, c->lr);
    if (task == FSDP_TASK_CLASSIFICATION && c->target_column)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--target-column: classification has --label-column, and "
                          "--text-pair-column for a second text");
    if (task != FSDP_TASK_SEQ2SEQ && c->target_column && !c->text_column)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--target-column needs --text-column: a completion has a prompt");
    if (task == FSDP_TASK_CLASSIFICATION && c->generate_examples > 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--generate-examples: classifiers do not generate texts");
    if (task == FSDP_TASK_MASKED_LM && c->generate_examples > 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--generate-examples: masked language models do not generate texts");
    if (task != FSDP_TASK_SEQ2SEQ && task != FSDP_TASK_CAUSAL_LM && c->predict_with_generate)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--predict-with-generate: only seq2seq and causal-lm generate texts");
    if (task != FSDP_TASK_CLASSIFICATION && (c->metric_for_best_model == FSDP_BEST_ACCURACY ||
                                             c->metric_for_best_model == FSDP_BEST_F1))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--metric-for-best-model: accuracy and F1 are for classification; %s has "
                          "the loss, and ROUGE with --predict-with-generate",
                          fsdp_train_task_name(task));
    if (task == FSDP_TASK_MASKED_LM && c->target_column)
        return fsdp_error(FSDP_ERR_INVALID, "--target-column is for pairs and prompts; masked-lm "
                                            "has one text a row");
    if (task == FSDP_TASK_SEQ2SEQ && c->max_seq_length > 0)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "--max-seq-length is for --task causal-lm and classification; seq2seq has "
            "--max-source-length and --max-target-length");
    if (task != FSDP_TASK_SEQ2SEQ && c->form.source_lang)
        return fsdp_error(FSDP_ERR_INVALID, "--source-lang is for --task seq2seq");
    if (task != FSDP_TASK_CAUSAL_LM && c->form.packing)
        return fsdp_error(FSDP_ERR_INVALID, "--packing is for --task causal-lm, not %s",
                          fsdp_train_task_name(task));
    if (task != FSDP_TASK_CAUSAL_LM && c->document_token >= 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--document-token is for the token files of --task causal-lm, not %s",
                          fsdp_train_task_name(task));
    return FSDP_OK;
}

fsdp_status fsdp_train_config_set_task(fsdp_train_config *c, fsdp_task task)
{
    complete(c, task);
    complete_schedule(c, task);
    return check_task(c, task);
}

/* Return true if --task is given, and set *task to the task that the model must then have. For
 * example, --task span-corruption needs a model whose task is seq2seq. If --task is not given,
 * *task is undefined. */
static bool given_task(const fsdp_train_config *c, fsdp_task *task)
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

static bool reshards(int strategy)
{
    return strategy == FSDP_SHARDING_FULL_SHARD || strategy == FSDP_SHARDING_HYBRID_SHARD;
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

/* Return true if --reshard-after-forward takes precedence over --sharding-strategy. This is so if
 * the source of its value takes precedence over the source of the strategy, for example a flag over
 * a file. It is also so if both values come from the environment and the user chose the value of
 * --reshard-after-forward (see reshard_is_only_exported()), because `accelerate launch` exports a
 * strategy even if the user chose only reshard_after_forward. */
static bool reshard_decides(const fsdp_options *options)
{
    const fsdp_option_origin strategy = fsdp_options_origin(options, "sharding-strategy");
    const fsdp_option_origin reshard = fsdp_options_origin(options, "reshard-after-forward");
    return reshard > strategy || (reshard == strategy && reshard == FSDP_ORIGIN_ENV &&
                                  !reshard_is_only_exported(options));
}

/* In Accelerate's files and variables for FSDP1, a number as the value of reshard_after_forward is
 * the number of a strategy in Accelerate's menu. Replace this number by the strategy. If the number
 * was given as a flag, it is a number of ranks instead and is not changed. */
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
    c->reshard_after_forward = reshards(word);
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
 * default. If --explicit-prefetching is on and no depth was given, both depths become two units, as
 * in the FSDP2 tutorial. */
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

/* Return true if an option has a value that has an effect only with activation checkpointing. */
static bool says_checkpointing(const fsdp_train_config *c)
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
    if (says_checkpointing(c) &&
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
 * training rows and the validation rows. If it has further files for a split, such as
 * train_part2.*, use all files of the folder for this split. */
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

/* Return true if the folder `data` has files for training and other files for validation, by their
 * names. */
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

/* Compute the values that were not given, and translate options that have the names of other tools
 * into this project's options. */
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
    if (given_task(c, &task))
        complete(c, task);
    derive_schedule(c, options);
    if (given_task(c, &task))
        complete_schedule(c, task);
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
        c->reshard_after_forward = reshards(c->sharding_strategy);
    derive_replicas(c, options);
}

static fsdp_status check_labels(const fsdp_train_config *c)
{
    const fsdp_option_list *names = &c->class_names;
    if (names->count == 1)
        return fsdp_error(FSDP_ERR_INVALID, "--class-names %s: at least two classes are needed",
                          names->items[0]);
    if (names->count && c->num_labels && c->num_labels != (int64_t)names->count)
        return fsdp_error(FSDP_ERR_INVALID, "--class-names has %zu names, --num-labels is %lld",
                          names->count, (long long)c->num_labels);
    for (size_t i = 0; i < names->count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(names->items[i], names->items[k]) == 0)
                return fsdp_error(FSDP_ERR_INVALID, "--class-names: '%s' is given twice",
                                  names->items[i]);
    return FSDP_OK;
}

static fsdp_status check_model(const fsdp_train_config *c)
{
    fsdp_task task;
    if (!*c->model || !*c->data)
        return fsdp_error(FSDP_ERR_INVALID, "%s is empty", *c->model ? "--data" : "--model");
    FSDP_TRY(fsdp_form_options_check(&c->form));
    if (c->wikihow_cleaning != (c->form.cleaning == FSDP_CLEANING_WIKIHOW))
        return fsdp_error(FSDP_ERR_INVALID, "--cleaning %s contradicts --wikihow-cleaning %s",
                          fsdp_cleaning_choices[c->form.cleaning],
                          c->wikihow_cleaning ? "true" : "false");
    if (c->form.text_pair_column && !c->text_column)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--text-pair-column needs --text-column: a pair has a first text");
    if (c->form.source_lang && (c->text_column || c->target_column))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--source-lang contradicts --text-column and --target-column: the texts "
                          "of a translation are named by their languages");
    return given_task(c, &task) ? check_task(c, task) : FSDP_OK;
}

static const char *optimizer_name(int optimizer)
{
    static const char *const names[] = {[FSDP_OPTIMIZER_ADAMW] = "adamw",
                                        [FSDP_OPTIMIZER_SGD] = "sgd",
                                        [FSDP_OPTIMIZER_ADAFACTOR] = "adafactor",
                                        [FSDP_OPTIMIZER_ADAM] = "adam",
                                        [FSDP_OPTIMIZER_ADAMW_8BIT] = "adamw_8bit",
                                        [FSDP_OPTIMIZER_MUON] = "muon",
                                        [FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW] =
                                            "schedule_free_adamw"};
    return names[optimizer];
}

/* Options of AdamW that some other optimizers have, too; see takes_adam_option(). */
static const char STATE_DTYPE[] = "optimizer-state-dtype", STOCHASTIC[] = "bf16-stochastic-round";

static bool is_moment_option(const char *option)
{
    return strcmp(option, "beta1") == 0 || strcmp(option, "beta2") == 0 ||
           strcmp(option, "eps") == 0;
}

static bool takes_adam_option(int optimizer, const char *option)
{
    if (is_moment_option(option))
        return fsdp_optimizer_has_betas(optimizer);
    if (strcmp(option, STOCHASTIC) == 0)
        return fsdp_optimizer_is_adam(optimizer) || optimizer == FSDP_OPTIMIZER_ADAMW_8BIT;
    return strcmp(option, STATE_DTYPE) == 0 && fsdp_optimizer_is_adam(optimizer);
}

static const char *adam_names(const char *option)
{
    return is_moment_option(option)          ? "adamw, adam, adamw_8bit, muon and "
                                               "schedule_free_adamw"
           : strcmp(option, STOCHASTIC) == 0 ? "adamw, adam and adamw_8bit"
                                             : "adamw and adam";
}

static fsdp_status check_of_optimizer(const fsdp_train_config *c, const fsdp_options *options)
{
    static const struct {
        const char *option;
        int optimizer;
    } rows[] = {{"beta1", FSDP_OPTIMIZER_ADAMW},
                {"beta2", FSDP_OPTIMIZER_ADAMW},
                {"eps", FSDP_OPTIMIZER_ADAMW},
                {STATE_DTYPE, FSDP_OPTIMIZER_ADAMW},
                {STOCHASTIC, FSDP_OPTIMIZER_ADAMW},
                {"adjust-lr-fn", FSDP_OPTIMIZER_MUON},
                {"ns-steps", FSDP_OPTIMIZER_MUON},
                {"ns-coefficients", FSDP_OPTIMIZER_MUON},
                {"weight-lr-power", FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW},
                {"schedule-free-r", FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW},
                {"scale-parameter", FSDP_OPTIMIZER_ADAFACTOR},
                {"relative-step", FSDP_OPTIMIZER_ADAFACTOR},
                {"warmup-init", FSDP_OPTIMIZER_ADAFACTOR},
                {"clip-threshold", FSDP_OPTIMIZER_ADAFACTOR},
                {"decay-rate", FSDP_OPTIMIZER_ADAFACTOR},
                {"adafactor-eps1", FSDP_OPTIMIZER_ADAFACTOR},
                {"adafactor-eps2", FSDP_OPTIMIZER_ADAFACTOR},
                {"adafactor-beta1", FSDP_OPTIMIZER_ADAFACTOR}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int wants = rows[i].optimizer;
        if (wants == c->optimizer || takes_adam_option(c->optimizer, rows[i].option))
            continue;
        if (fsdp_options_asked_for(options, rows[i].option) &&
            !fsdp_train_is_ignored_adam(c, options, rows[i].option))
            return fsdp_error(
                FSDP_ERR_INVALID, "--%s is for --optimizer %s, not %s", rows[i].option,
                fsdp_optimizer_is_adam(wants) ? adam_names(rows[i].option) : optimizer_name(wants),
                optimizer_name(c->optimizer));
    }
    return FSDP_OK;
}

static fsdp_status check_sgd(const fsdp_train_config *c)
{
    if (c->optimizer == FSDP_OPTIMIZER_MUON && c->dampening == 0)
        return FSDP_OK; /* fsdp_muon_add_group() checks the momentum */
    if (c->optimizer != FSDP_OPTIMIZER_SGD && c->momentum != 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--momentum is for --optimizer sgd and muon; adamw and adam have "
                          "--beta1");
    if (c->optimizer != FSDP_OPTIMIZER_SGD && (c->nesterov || c->dampening != 0))
        return fsdp_error(FSDP_ERR_INVALID, "--%s is for --optimizer sgd",
                          c->nesterov ? "nesterov" : "dampening");
    if (c->nesterov && (c->momentum == 0 || c->dampening != 0))
        return fsdp_error(FSDP_ERR_INVALID, "--nesterov needs --momentum and no --dampening");
    return FSDP_OK;
}

static fsdp_status check_adafactor(const fsdp_train_config *c, const fsdp_options *options)
{
    static const char *const rates[] = {"lr",           "lr-schedule", "lr-decay",  "min-lr",
                                        "min-lr-rate",  "gamma",       "step-size", "schedule-unit",
                                        "warmup-steps", "warmup-ratio"};
    if (c->optimizer != FSDP_OPTIMIZER_ADAFACTOR)
        return FSDP_OK;
    if (c->warmup_init && !c->relative_step)
        return fsdp_error(FSDP_ERR_INVALID, "--warmup-init needs --relative-step");
    for (size_t i = 0; c->relative_step && i < sizeof rates / sizeof *rates; i++)
        if (fsdp_options_asked_for(options, rates[i]) ||
            /* Refuse --lr and --lr-schedule even if they have their default values: the user has
             * given them. */
            (i < 2 && fsdp_train_set_by_user(options, rates[i])))
            return fsdp_error(FSDP_ERR_INVALID,
                              "--%s contradicts --relative-step, with which Adafactor chooses the "
                              "rate itself",
                              rates[i]);
    return FSDP_OK;
}

static fsdp_status check_schedule_free(const fsdp_train_config *c)
{
    if (c->optimizer != FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW || c->lr_schedule == FSDP_LR_CONSTANT)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--optimizer schedule_free_adamw has a constant rate after --warmup-steps: "
                      "leave --lr-schedule, --min-lr and what belongs to a schedule out, or give "
                      "--lr-schedule constant");
}

fsdp_status fsdp_train_ns_coefficients(const fsdp_train_config *c, double coefficients[3])
{
    const fsdp_option_list *list = &c->ns_coefficients;
    bool good = list->count == 3;
    for (size_t i = 0; good && i < 3; i++) {
        char *end;
        coefficients[i] = strtod(list->items[i], &end);
        good = *list->items[i] && !*end && isfinite(coefficients[i]);
    }
    if (good && coefficients[2] != 0.0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--ns-coefficients: three numbers are needed, of which the last is not 0: "
                      "3.4445,-4.775,2.0315");
}

static fsdp_status check_numbers(const fsdp_train_config *c, const fsdp_options *options)
{
    double coefficients[3];
    const bool has_end = c->min_lr > 0 || c->min_lr_rate > 0;
    if (c->min_lr_rate > 0 && fsdp_options_asked_for(options, "min-lr"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--min-lr-rate contradicts --min-lr: one of the two is the last rate");
    if (has_end && c->lr_schedule != FSDP_LR_LINEAR && c->lr_schedule != FSDP_LR_COSINE &&
        c->lr_schedule != FSDP_LR_POLYNOMIAL && c->lr_schedule != FSDP_LR_COSINE_RESTARTS)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--%s %g: only --lr-schedule linear, cosine, polynomial and "
                          "cosine-with-restarts end there",
                          c->min_lr_rate > 0 ? "min-lr-rate" : "min-lr",
                          c->min_lr_rate > 0 ? c->min_lr_rate : c->min_lr);
    FSDP_TRY(fsdp_train_check_steps(c));
    FSDP_TRY(fsdp_train_check_do_train(c, options));
    FSDP_TRY(check_sgd(c));
    FSDP_TRY(check_adafactor(c, options));
    FSDP_TRY(check_schedule_free(c));
    FSDP_TRY(fsdp_train_ns_coefficients(c, coefficients));
    FSDP_TRY(check_of_optimizer(c, options));
    if (c->max_grad_norm > 0 && c->clip_value > 0)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "--clip-value contradicts --max-grad-norm: gradients are clipped by value "
            "or by norm");
    return fsdp_train_precision_check(c, options);
}

static fsdp_status check_accumulation(const fsdp_train_config *c)
{
    static const char *const names[] = {"reduce", "reduce-scatter", "no-sync"};
    if (c->sync_each_batch != (c->accumulation_mode == FSDP_ACCUMULATION_REDUCE))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--gradient-accumulation-mode %s contradicts --sync-each-batch %s",
                          names[c->accumulation_mode], c->sync_each_batch ? "true" : "false");
    if (c->accumulation_mode == FSDP_ACCUMULATION_REDUCE_SCATTER &&
        !fsdp_sharding_is_hybrid(c->sharding_strategy))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--gradient-accumulation-mode reduce-scatter is for --sharding-strategy "
                          "HYBRID_SHARD: without replicas it is reduce");
    return FSDP_OK;
}

static fsdp_status check_checkpointing(const fsdp_train_config *c)
{
    if (says_checkpointing(c) && !c->activation_checkpointing)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--no-activation-checkpointing contradicts --activation-%s",
                          c->activation_offload                   ? "offload"
                          : c->activation_checkpointing_every > 1 ? "checkpointing-every"
                                                                  : "checkpointing-kind");
    return FSDP_OK;
}

/* Return the text of `value` that a user would write after --reshard-after-forward. The text is
 * static or is stored in `text`. */
static const char *reshard_text(int value, char text[16])
{
    if (value <= 1)
        return value ? "true" : "false";
    snprintf(text, 16, "%d", value);
    return text;
}

static fsdp_status check_sharding(const fsdp_train_config *c)
{
    FSDP_TRY(check_checkpointing(c));
    const char *name = fsdp_sharding_strategy_name((fsdp_sharding_strategy)c->sharding_strategy);
    if (reshards(c->sharding_strategy) != (c->reshard_after_forward != 0)) {
        char given[16];
        return fsdp_error(FSDP_ERR_INVALID,
                          "--sharding-strategy %s contradicts --reshard-after-forward %s", name,
                          reshard_text(c->reshard_after_forward, given));
    }
    if ((c->shard_size || c->replicas) && !fsdp_sharding_is_hybrid(c->sharding_strategy))
        return fsdp_error(FSDP_ERR_INVALID, "--%s is for --sharding-strategy HYBRID_SHARD, not %s",
                          c->shard_size ? "shard-size" : "replicas", name);
    return check_accumulation(c);
}

fsdp_status fsdp_train_config_shard_size(const fsdp_train_config *c, int world_size,
                                         int ranks_of_host, int *shard_size)
{
    int size = c->shard_size ? c->shard_size : ranks_of_host;
    if (!c->shard_size && c->replicas) {
        if (world_size % c->replicas)
            return fsdp_error(FSDP_ERR_INVALID, "--replicas %d does not divide the %d ranks",
                              c->replicas, world_size);
        size = world_size / c->replicas;
    }
    if (world_size % size)
        return fsdp_error(FSDP_ERR_INVALID, "--shard-size %d does not divide the %d ranks", size,
                          world_size);
    const int64_t ranks = (int64_t)c->replicas * size;
    if (c->replicas && ranks != world_size)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--replicas %d times --shard-size %d are %lld ranks, but there are %d",
                          c->replicas, size, (long long)ranks, world_size);
    *shard_size = size;
    return FSDP_OK;
}

static fsdp_status check_prefetch(const fsdp_train_config *c)
{
    if (!c->explicit_prefetching && (c->forward_prefetch_depth || c->backward_prefetch_depth))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--no-explicit-prefetching contradicts --%s-prefetch-depth",
                          c->forward_prefetch_depth ? "forward" : "backward");
    return FSDP_OK;
}

static fsdp_status check_wrapping(const fsdp_train_config *c)
{
    static const char *const names[] = {[FSDP_AUTO_WRAP_TRANSFORMER_BASED] =
                                            "TRANSFORMER_BASED_WRAP",
                                        [FSDP_AUTO_WRAP_SIZE_BASED] = "SIZE_BASED_WRAP",
                                        [FSDP_AUTO_WRAP_NO] = "NO_WRAP"};
    const char *policy = names[c->auto_wrap_policy];
    if (c->min_num_params > 0 && c->auto_wrap_policy != FSDP_AUTO_WRAP_SIZE_BASED)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--min-num-params is for --auto-wrap-policy SIZE_BASED_WRAP, not %s",
                          policy);
    if ((c->named.exclude_wrap_modules.count || c->named.force_leaf_modules.count) &&
        c->auto_wrap_policy != FSDP_AUTO_WRAP_SIZE_BASED)
        return fsdp_error(
            FSDP_ERR_INVALID, "--%s is for --auto-wrap-policy SIZE_BASED_WRAP, not %s",
            c->named.force_leaf_modules.count ? "force-leaf-modules" : "exclude-wrap-modules",
            policy);
    if (c->transformer_layer_cls_to_wrap.count &&
        c->auto_wrap_policy != FSDP_AUTO_WRAP_TRANSFORMER_BASED)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--transformer-layer-cls-to-wrap is for --auto-wrap-policy "
                          "TRANSFORMER_BASED_WRAP, not %s",
                          policy);
    return FSDP_OK;
}

/* Return an error if the user gave a checkpoint option that has no effect with this
 * --save-strategy. The user has probably chosen the wrong strategy. */
static fsdp_status check_save_flags(const fsdp_train_config *c, const fsdp_options *options)
{
    const bool saves = c->save_strategy != FSDP_SAVE_NO;
    if (c->save_strategy != FSDP_SAVE_STEPS && c->save_steps > 0 &&
        fsdp_train_set_by_user(options, "save-steps"))
        return fsdp_error(FSDP_ERR_INVALID, "--save-strategy %s contradicts --save-steps %.15g",
                          saves ? "epoch" : "no", c->save_steps);
    if (c->checkpoint_dir && !*c->checkpoint_dir)
        return fsdp_error(FSDP_ERR_INVALID, "--checkpoint-dir is empty");
    if (saves)
        return FSDP_OK;
    if (c->save_total_limit > 0 && fsdp_train_set_by_user(options, "save-total-limit"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--save-total-limit %lld: without --save-steps or --save-strategy no "
                          "checkpoint is saved",
                          (long long)c->save_total_limit);
    if (c->checkpoint_dir && !c->resume && fsdp_train_set_by_user(options, "checkpoint-dir"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--checkpoint-dir %s: without --save-steps or --save-strategy no "
                          "checkpoint is saved",
                          c->checkpoint_dir);
    return FSDP_OK;
}

static fsdp_status check_async_save(const fsdp_train_config *c)
{
    if (!c->async_save)
        return FSDP_OK;
    if (c->save_strategy == FSDP_SAVE_NO)
        return fsdp_error(FSDP_ERR_INVALID, "--async-save: without --save-steps or --save-strategy "
                                            "no checkpoint is saved");
    if (c->state_dict_type == FSDP_STATE_DICT_SHARDED &&
        c->checkpoint_format == FSDP_CHECKPOINT_FSDP)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "--async-save needs --state-dict-type SHARDED_STATE_DICT and "
                      "--checkpoint-format fsdp");
}

static fsdp_status check_checkpoints(const fsdp_train_config *c, const fsdp_options *options)
{
    bool searches = c->resume && strcmp(c->resume, "auto") == 0;
    if (c->checkpoint && (!c->resume || strcmp(c->resume, c->checkpoint) != 0))
        return fsdp_error(FSDP_ERR_INVALID, "--checkpoint %s: needs --resume true", c->checkpoint);
    if (c->save_strategy == FSDP_SAVE_BEST)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--save-strategy best: checkpoints to continue from are written by steps "
                          "or epochs; with --validation-data the best model is always saved in "
                          "--output");
    FSDP_TRY(check_save_flags(c, options));
    FSDP_TRY(check_async_save(c));
    if (c->resume_step >= 0 && (!c->resume || searches))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--resume-step %lld: needs a certain checkpoint, --resume DIR",
                          (long long)c->resume_step);
    if (c->save_strategy == FSDP_SAVE_STEPS && c->save_steps == 0)
        return fsdp_error(FSDP_ERR_INVALID, "--save-strategy steps needs --save-steps above 0");
    if ((c->save_strategy != FSDP_SAVE_NO || searches) && !c->checkpoint_dir && !c->output)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s needs --checkpoint-dir, or --output, next to which checkpoints are written",
            searches                                       ? "--resume"
            : fsdp_options_given(options, "save-strategy") ? "--save-strategy"
                                                           : "--save-steps");
    if (c->checkpoint_format != FSDP_CHECKPOINT_FSDP && c->save_strategy != FSDP_SAVE_NO &&
        c->state_dict_type == FSDP_STATE_DICT_LOCAL)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--checkpoint-format accelerate: Accelerate has no LOCAL_STATE_DICT with "
                          "FSDP2; --state-dict-type SHARDED_STATE_DICT or FULL_STATE_DICT");
    return FSDP_OK;
}

static fsdp_status check_plot(const fsdp_train_config *c)
{
    fsdp_plot_format format;
    fsdp_status status = c->plot ? fsdp_plot_format_of(c->plot, &format) : FSDP_OK;
    if (status != FSDP_OK)
        fsdp_error_context(status, "--plot");
    return status;
}

/* Check the options that belong to --predict-with-generate, and those that choose the best
 * model. */
static fsdp_status check_predictions(const fsdp_train_config *c, const fsdp_options *options)
{
    const char *flag = c->generation_max_length > 0  ? "generation-max-length"
                       : c->generation_num_beams > 1 ? "generation-num-beams"
                       : c->rouge_stemmer            ? "rouge-stemmer"
                                                     : NULL;
    const int metric = c->metric_for_best_model;
    if (c->predict_with_generate && !c->run_validation)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--predict-with-generate needs --validation-data and --run-validation");
    if (c->predict_with_generate && c->form.packing)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--predict-with-generate: a row of --packing has several prompts, and a "
                          "text is generated for the first one only; leave out --packing");
    if (flag && !c->predict_with_generate)
        return fsdp_error(FSDP_ERR_INVALID, "--%s needs --predict-with-generate", flag);
    if (metric >= FSDP_BEST_ROUGE1 && !c->predict_with_generate)
        return fsdp_error(FSDP_ERR_INVALID, "--metric-for-best-model: ROUGE needs "
                                            "--predict-with-generate");
    if (metric != FSDP_BEST_LOSS && !c->run_validation)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--metric-for-best-model needs --validation-data and --run-validation");
    if (fsdp_options_asked_for(options, "greater-is-better") &&
        c->greater_is_better != (metric != FSDP_BEST_LOSS))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--greater-is-better %s contradicts --metric-for-best-model: the best "
                          "model has the %s",
                          c->greater_is_better ? "true" : "false",
                          metric == FSDP_BEST_LOSS ? "least loss" : "greatest score");
    return FSDP_OK;
}

static fsdp_status check_output(const fsdp_train_config *c, const fsdp_options *options)
{
    if (c->save_model && !c->output)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--output is missing: a folder for the model, or --no-save-model");
    if (c->splits_data && c->mix_data.count)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--validation-split-percentage splits the rows of --data alone: with "
                          "--mix-data, give rows for validation with --validation-data");
    if (c->run_validation && !c->validation_data)
        return fsdp_error(FSDP_ERR_INVALID, "--run-validation needs --validation-data");
    if (c->evaluation_steps > 0 && !c->run_validation)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--evaluation-steps needs --validation-data and --run-validation");
    if (c->generate_examples > 0 && !c->run_validation)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--generate-examples needs --validation-data and --run-validation");
    FSDP_TRY(check_predictions(c, options));
    if (c->plot && !c->metrics)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--plot draws the content of --metrics FILE: give both");
    FSDP_TRY(check_plot(c));
    if (c->profile_steps && !c->profile)
        return fsdp_error(FSDP_ERR_INVALID, "--profile-steps needs --profile FILE");
    int64_t first, last;
    if (c->profile_steps)
        FSDP_TRY(fsdp_profile_parse_steps("--profile-steps", c->profile_steps, &first, &last));
#ifndef FSDP_HAVE_CAIRO
    if (c->plot)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--plot: this program was built without cairo ('make deps' gets it)");
#endif
    return FSDP_OK;
}

/* Refuse keys in files of Accelerate that contradict each other, as Accelerate's launcher does. */
static fsdp_status check_file(const fsdp_train_config *c, const fsdp_options *options)
{
    const char *type = fsdp_options_text(options, "distributed-type");
    for (int i = 0; type && fsdp_accelerate_types[i]; i++)
        if (fsdp_option_choice_matches(fsdp_accelerate_types[i], type))
            FSDP_TRY(fsdp_accelerate_check_type(i, options));
    if (fsdp_options_origin(options, "fsdp-version") != FSDP_ORIGIN_FILE)
        return FSDP_OK;
    return fsdp_accelerate_check_keys(&c->file_keys, options);
}

fsdp_status fsdp_train_config_check(void *config, const fsdp_options *options)
{
    const fsdp_train_config *c = config;
    FSDP_TRY(fsdp_train_check_device(c, options));
    FSDP_TRY(fsdp_train_check_trainer(c, options));
    FSDP_TRY(check_model(c));
    FSDP_TRY(check_labels(c));
    FSDP_TRY(fsdp_train_lora_check(c));
    FSDP_TRY(fsdp_train_float8_check(c, options));
    FSDP_TRY(fsdp_train_sources_check(c, options));
    FSDP_TRY(check_numbers(c, options));
    FSDP_TRY(check_file(c, options));
    FSDP_TRY(fsdp_train_check_parallelism(options));
    FSDP_TRY(check_sharding(c));
    FSDP_TRY(check_prefetch(c));
    FSDP_TRY(check_wrapping(c));
    FSDP_TRY(check_checkpoints(c, options));
    FSDP_TRY(fsdp_train_paths_check(c));
    FSDP_TRY(check_output(c, options));
    FSDP_TRY(fsdp_train_report_check(c));
    return fsdp_train_effect_check(c, options);
}

/* Return how master weights and optimizer state are offloaded. If --offload-dir is given, they are
 * offloaded to files. If only --cpu-offload is given, they are offloaded to memory. There is one
 * exception. If --offload-dir and --activation-offload are given without --cpu-offload, the folder
 * is for activations only, and master weights and optimizer state are not offloaded. */
static fsdp_offload_policy offload_policy(const fsdp_train_config *c)
{
    const bool offloads = c->cpu_offload || !c->activation_offload;
    return (fsdp_offload_policy){.kind = offloads && c->offload_dir ? FSDP_OFFLOAD_DIR
                                         : c->cpu_offload           ? FSDP_OFFLOAD_CPU
                                                                    : FSDP_OFFLOAD_NONE,
                                 .dir = c->offload_dir};
}

void fsdp_train_config_shard_options(const fsdp_train_config *c, fsdp_fully_shard_options *options)
{
    *options = (fsdp_fully_shard_options){
        .mp_policy = fsdp_train_mp_policy(c),
        .set_internode_reduce_dtype = c->set_internode_reduce_dtype,
        .internode_reduce_dtype = c->internode_reduce_dtype,
        .reshard_after_forward = c->reshard_after_forward > 1 ? FSDP_RESHARD_TO_SMALLER
                                 : c->reshard_after_forward   ? FSDP_RESHARD_DEFAULT
                                                              : FSDP_RESHARD_FALSE,
        .reshard_ranks = c->reshard_after_forward,
        .no_shard = c->sharding_strategy == FSDP_SHARDING_NO_SHARD,
        .backward_prefetch = (fsdp_backward_prefetch)c->backward_prefetch,
        .forward_prefetch = (fsdp_forward_prefetch)c->forward_prefetch_kind,
        .no_limit_all_gathers = !c->limit_all_gathers,
        .offload_policy = offload_policy(c)};
}
