/* Checks that no values of the configuration of `fsdp train` contradict each other, and converts
 * the configuration to the options of fsdp_fully_shard(). */
#include <stdio.h>
#include <string.h>

#include <fsdp/state_dict.h>

#include "src/options/options_parse.h"
#include "src/profile/profile.h"
#include "src/report/plot.h"
#include "src/train_config/config.h"
#include "src/train_config/config_derive.h"
#include "src/train_config/config_device.h"
#include "src/train_config/config_effect.h"
#include "src/train_config/config_report.h"
#include "src/train_config/config_float8.h"
#include "src/train_config/config_lora.h"
#include "src/train_config/config_optimizer.h"
#include "src/train_config/config_parallelism.h"
#include "src/train_config/config_paths.h"
#include "src/train_config/config_sources.h"
#include "src/train_config/config_trainer.h"
#include "src/train_config/precision.h"

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

/* Return true if the user gave the option, or if the configuration was not made from options. */
static bool is_given(const fsdp_train_config *c, const char *option)
{
    return !c->options || fsdp_options_given(c->options, option);
}

/* Check that the last learning rate is not above the first one. The user may have given only one of
 * them. */
static fsdp_status check_last_rate(const fsdp_train_config *c, fsdp_task task)
{
    if (c->min_lr <= c->lr || c->relative_step) /* fsdp_train_check_optimizer() refuses both */
        return FSDP_OK;
    if (!is_given(c, "min-lr"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--lr %g is below %g, the last rate of --lr-schedule polynomial, which "
                          "is transformers' lr_end: give --min-lr, a last rate below --lr",
                          c->lr, c->min_lr);
    if (!is_given(c, "lr"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--min-lr %g is above the learning rate, which is %g for %s if --lr is "
                          "not given",
                          c->min_lr, c->lr, fsdp_train_task_name(task));
    return fsdp_error(FSDP_ERR_INVALID, "--min-lr %g is above --lr %g", c->min_lr, c->lr);
}

static fsdp_status check_task(const fsdp_train_config *c, fsdp_task task)
{
    FSDP_TRY(check_pair_options(c, task));
    FSDP_TRY(check_last_rate(c, task));
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
    fsdp_train_complete(c, task);
    fsdp_train_complete_schedule(c, task);
    const fsdp_status status = check_task(c, task);
    return c->options ? fsdp_options_add_spellings(c->options, status) : status;
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
    return fsdp_train_given_task(c, &task) ? check_task(c, task) : FSDP_OK;
}

static fsdp_status check_numbers(const fsdp_train_config *c, const fsdp_options *options)
{
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
    FSDP_TRY(fsdp_train_check_optimizer(c, options));
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
    if (fsdp_train_says_checkpointing(c) && !c->activation_checkpointing)
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
    if (fsdp_train_reshards(c->sharding_strategy) != (c->reshard_after_forward != 0)) {
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
        return fsdp_error(FSDP_ERR_INVALID, "--%s needs --validation-data and --run-validation",
                          c->eval_step_interval > 0 ? "eval-step-interval" : "evaluation-steps");
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
    FSDP_TRY(fsdp_train_lora_check(c, options));
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
