/* The option table of `fsdp train`. The main name of each option is this project's own. The aliases
 * are names from the FSDP tutorials, transformers' Trainer and Accelerate. Options of these tools
 * that have no effect here are in config_compat.c. */
#include "src/base/assert.h"
#include "src/options/device_option.h"
#include "src/options/isa_option.h"
#include "src/train_config/config_compat.h"
#include "src/train_config/config_effect.h"
#include "src/train_config/config_float8.h"
#include "src/train_config/config_sections.h"
#include "src/train_config/precision.h"

static const char *const tasks[] = {"auto",
                                    "seq2seq|summarization",
                                    "causal-lm|clm|language-modeling|text-generation",
                                    "classification|text-classification|sequence-classification",
                                    "masked-lm|mlm|fill-mask|masked-language-modeling",
                                    "span-corruption",
                                    NULL};
static const char *const samplers[] = {"default", "distributed|DistributedSampler", NULL};
static const char *const samplings[] = {"random", "sequential", "group_by_length", NULL};
static const char *const reductions[] = {"token-mean", "mean-of-means", NULL};
static const char *const optimizers[] = {"adamw|adam-w|adamw_torch|adamw_torch_fused|adamw_hf|"
                                         "adamw_apex_fused|paged_adamw|paged_adamw_32bit",
                                         "sgd",
                                         "adafactor",
                                         "adam",
                                         "adamw_8bit|adamw_bnb_8bit|adamw_torch_8bit|adamw8bit",
                                         "muon",
                                         "schedule_free_adamw|schedule-free-adamw|"
                                         "AdamWScheduleFree",
                                         NULL};
static const char *const adjustments[] = {"original", "match_rms_adamw", NULL};
static const char *const schedules[] = {
    "step|StepLR",  "linear",     "cosine|cosine_with_min_lr", "constant|constant_with_warmup",
    "inverse-sqrt", "polynomial", "cosine-with-restarts",      NULL};
static const char *const save_strategies[] = {"no", "steps", "epoch", "best", NULL};
static const char *const best_metrics[] = {"loss|eval_loss|none|null",
                                           "accuracy|eval_accuracy",
                                           "f1|eval_f1",
                                           "rouge1|eval_rouge1",
                                           "rouge2|eval_rouge2",
                                           "rougeL|eval_rougeL",
                                           "rougeLsum|eval_rougeLsum",
                                           NULL};
static const char *const strategies[] = {"no|none", "steps", "epoch", NULL};
static const char *const state_dict_types[] = {
    "SHARDED_STATE_DICT|sharded|3", "FULL_STATE_DICT|full|1", "LOCAL_STATE_DICT|local|2", NULL};
static const char *const checkpoint_formats[] = {"fsdp|default", "accelerate",
                                                 "accelerate-0.24|accelerate-old", NULL};
static const char *const units[] = {"epoch", "step", NULL};
static const char *const accumulations[] = {"reduce", "reduce-scatter|reduce_scatter",
                                            "no-sync|no_sync", NULL};
static const char *const wrap_policies[] = {"TRANSFORMER_BASED_WRAP|1|transformer|T5Block|MT5Block|"
                                            "UMT5Block|LlamaDecoderLayer|MistralDecoderLayer|"
                                            "Qwen2DecoderLayer|Qwen3DecoderLayer|GPT2Block|"
                                            "BertLayer",
                                            "SIZE_BASED_WRAP|2|size", "NO_WRAP|3|none", NULL};
static const char *const checkpointings[] = {"full", "op|selective", NULL};
/* The names of fsdp_lora_bias and fsdp_lora_init in the order of these enums. `pissa` is not a
 * value of fsdp_lora_init: fsdp_train_lora_check() refuses it. */
static const char *const lora_biases[] = {"none", "all", "lora_only", NULL};
static const char *const lora_inits[] = {"kaiming|true", "gaussian", "pissa", NULL};
static const char *const fp8_backends[] = {"none|no", "ao", "te", "msamp", NULL};
static const char *const print_models[] = {"none|no|false|0|off", "fsdp2|yes|true|1|on|2", "fsdp1",
                                           NULL};

#define PLACE(field) .offset = offsetof(fsdp_train_config, field)

/* clang-format off */
static const fsdp_option table[] = {
    {.name = "task", .type = FSDP_OPTION_CHOICE, PLACE(task), .value = "auto",
     .choices = tasks, .metavar = "TASK", .group = "model and data",
     .shown_default = "auto, what the model is for",
     .help = "what is learned: targets of sources (T5), each token's successor (Llama, GPT-2), "
             "the class of a sequence (BERT), masked tokens (BertForMaskedLM, unless the rows have "
             "labels); span-corruption: T5's objective on plain text"},
    {.name = "model", .aliases = "model-name,model-name-or-path", .type = FSDP_OPTION_STRING,
     PLACE(model), .metavar = "DIR", .required = true,
     .help = "Hugging Face folder, or a hub name found in the local cache"},
    {.name = "from-config", .type = FSDP_OPTION_BOOL, PLACE(from_config),
     .help = "start from random weights of the seed: only the folder's config.json is read"},
    {.name = "num-labels", .type = FSDP_OPTION_INT64, PLACE(num_labels),
     .bounds = FSDP_BETWEEN(1, 1073741824), .optional = true, .shown_default = "config.json's, or 2",
     .help = "classification: classes, as from_pretrained(num_labels=N); a classifier that the "
             "files do not have is newly drawn; 1 means regression"},
    {.name = "problem-type", .type = FSDP_OPTION_CHOICE, PLACE(problem_type), .value = "auto",
     .choices = fsdp_problem_type_choices, .metavar = "TYPE",
     .shown_default = "config.json's, or what the labels are",
     .help = "classification: one class a row (cross-entropy), numbers (mean squared error) or "
             "several classes a row (binary cross-entropy)"},
    {.name = "do-regression", .type = FSDP_OPTION_BOOL, PLACE(do_regression),
     .help = "the same as --problem-type regression"},
    {.name = "class-names", .type = FSDP_OPTION_LIST, PLACE(class_names), .metavar = "NAME,...",
     .shown_default = "id2label of config.json",
     .help = "classification: names of classes 0, 1, ..., one for each class; rows may use them "
             "as labels, and they are stored in the saved config.json"},
    {.name = "ignore-mismatched-sizes", .type = FSDP_OPTION_BOOL, PLACE(ignore_mismatched_sizes),
     .help = "draw random values for weights that have another shape in the files, such as a "
             "classifier with another number of classes"},
    {.name = "tokenizer", .aliases = "tokenizer-name", .type = FSDP_OPTION_STRING,
     PLACE(tokenizer), .metavar = "PATH", .shown_default = "the model's",
     .help = "a tokenizer's file (tokenizer.json, spiece.model, ...), or a folder that holds one"},
    {.name = "data", .aliases = "dataset,train-data,train-file,train-data-dir,data-dir",
     .type = FSDP_OPTION_STRING, PLACE(data), .metavar = "PATH", .required = true,
     .several = "a folder, or a pattern in quotes, names several files",
     .help = "CSV or JSONL file, or a folder of datasets.save_to_disk(); causal-lm: also a file of tokens (.bin of llm.c or nanoGPT), a "
             "folder of them or a pattern ('shards/*.bin'); span-corruption: any of these, or plain "
             "text with a document a line"},
    {.name = "mix-data", .type = FSDP_OPTION_LIST, PLACE(mix_data),
     .metavar = "TASK:WEIGHT:PATH,...", .several = "a comma separates several",
     .help = "additional training data with tasks of their own: seq2seq:0.3:pairs.csv. A step "
             "takes rows from each source in proportion to its weight; an epoch has as many rows "
             "as all sources together"},
    {.name = "data-weight", .type = FSDP_OPTION_DOUBLE, PLACE(data_weight), .value = "1",
     .bounds = FSDP_ABOVE(0), .help = "the weight of --data relative to those of --mix-data"},
    {.name = "noise-density", .aliases = "mlm-probability", .type = FSDP_OPTION_DOUBLE,
     PLACE(noise_density), .value = "0.15",
     .bounds = {.set = true, .min = 0, .max = 1, .above = true, .below = true},
     .help = "span-corruption: fraction of the tokens that are replaced by sentinels; masked-lm: "
             "fraction of the tokens that are predicted; most of them are replaced by [MASK]"},
    {.name = "mean-noise-span-length", .type = FSDP_OPTION_DOUBLE, PLACE(mean_noise_span_length),
     .value = "3", .bounds = FSDP_AT_LEAST(1),
     .help = "span-corruption: average number of tokens that a sentinel replaces"},
    {.name = "validation-data", .aliases = "validation-file,eval-data",
     .type = FSDP_OPTION_STRING, PLACE(validation_data), .metavar = "PATH",
     .several = "a folder, or a pattern in quotes, names several files",
     .shown_default = "the rows for validation in the folder of --data, if it has some",
     .help = "rows for validation, in the same formats"},
    {.name = "validation-split-percentage", .type = FSDP_OPTION_INT,
     PLACE(validation_split_percentage), .value = "0", .bounds = FSDP_BETWEEN(0, 99),
     .shown_default = "0, none", .metavar = "N",
     .help = "validate with the first N percent of the rows of --data; training has the rows after "
             "them, as in run_clm without validation rows; plain text: of the documents"},
    {.name = "task-prefix", .aliases = "source-prefix", .type = FSDP_OPTION_STRING,
     PLACE(task_prefix), .shown_default = "seq2seq: prefix of the model's config.json, else "
     "'summarize: ', with which T5 was trained; the FSDP tutorial's script has none: "
     "--task-prefix=''. Other tasks: none",
     .help = "text put before every source text or prompt; seq2seq: the saved model's config.json "
     "stores it"},
    {.name = "text-column", .aliases = "source-column,prompt-column", .type = FSDP_OPTION_STRING,
     PLACE(text_column), .metavar = "NAME", .shown_default = "text, or another usual name; "
     "causal-lm: prompt beside completion",
     .help = "column of CSV, or key of JSONL, with the source, the prompt or the whole text"},
    {.name = "target-column", .aliases = "summary-column,completion-column",
     .type = FSDP_OPTION_STRING, PLACE(target_column), .metavar = "NAME",
     .shown_default = "headline, or another usual name; causal-lm: completion, or none",
     .help = "column or key with the target, or with the text after the prompt"},
    FSDP_CHAT_ROW_OPTIONS(offsetof(fsdp_train_config, chat)),
    {.name = "wikihow-cleaning", .type = FSDP_OPTION_BOOL, PLACE(wikihow_cleaning),
     .help = "the same as --cleaning wikihow"},
    FSDP_FORM_OPTIONS(offsetof(fsdp_train_config, form)),
    {.name = "max-train-samples", .type = FSDP_OPTION_INT64, PLACE(max_train_samples),
     .value = "0", .bounds = FSDP_AT_LEAST(0), .shown_default = "0, all",
     .help = "use only the first N rows"},
    {.name = "max-validation-samples", .aliases = "max-eval-samples", .type = FSDP_OPTION_INT64,
     PLACE(max_validation_samples), .value = "0", .bounds = FSDP_AT_LEAST(0),
     .shown_default = "0, all", .help = "use only the first N rows for validation"},
    {.name = "max-source-length", .aliases = "max-input-length", .type = FSDP_OPTION_INT,
     PLACE(max_source_length), .value = "512", .bounds = FSDP_BETWEEN(1, 1048576),
     .help = "seq2seq: most tokens of a source; longer sources are cut, but rows of token ids "
             "only if this is given. span-corruption: every input has exactly this many tokens, "
             "which determines the length of targets"},
    {.name = "max-target-length", .aliases = "max-output-length", .type = FSDP_OPTION_INT,
     PLACE(max_target_length), .value = "150", .bounds = FSDP_BETWEEN(1, 1048576),
     .help = "seq2seq: tokens of a target; longer targets are cut"},
    {.name = "val-max-target-length", .type = FSDP_OPTION_INT, PLACE(val_max_target_length),
     .value = "0", .bounds = FSDP_BETWEEN(0, 1048576), .shown_default = "0, --max-target-length",
     .help = "seq2seq: tokens of a target in validation"},
    {.name = "max-seq-length", .aliases = "block-size,max-length,context-length,seq-length,"
     "sequence-length", .type = FSDP_OPTION_INT64, PLACE(max_seq_length), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1073741824), .shown_default = "0, the model's limit; token files: "
     "at most 1024",
     .help = "causal-lm and classification: tokens of a row; longer rows are cut. Token files "
             "are cut into rows of this length"},
    {.name = "document-token", .type = FSDP_OPTION_INT64, PLACE(document_token), .value = "-1",
     .bounds = FSDP_BETWEEN(-1, 2147483647), .metavar = "ID", .shown_default = "-1, none",
     .help = "token files: a document begins at each token ID, and its tokens attend to no "
             "other document (llm.c's GPT-2 files: 50256)"},
    {.name = "dropout", .aliases = "dropout-rate", .type = FSDP_OPTION_DOUBLE, PLACE(dropout),
     .bounds = FSDP_FROM_TO_BELOW(0, 1), .shown_default = "the model's",
     .help = "probability with which activations are dropped"},
    {.name = "frozen-prefixes", .aliases = "freeze-prefixes,frozen-parameters",
     .type = FSDP_OPTION_LIST, PLACE(frozen_prefixes), .metavar = "NAME,...",
     .help = "parameters whose names begin with one of these are not trained and have neither "
             "gradients nor moments: model.embed_tokens,model.layers.0."},

    {.name = "lora-r", .type = FSDP_OPTION_INT64, PLACE(lora_r), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1048576), .group = "adapter (LoRA), with PEFT's options",
     .metavar = "RANK", .shown_default = "0, no adapter: all weights are trained",
     .help = "freeze the model and train low-rank updates of its linear layers; --output gets "
             "PEFT's adapter_config.json and adapter_model.safetensors"},
    {.name = "lora-alpha", .type = FSDP_OPTION_DOUBLE, PLACE(lora_alpha), .value = "0",
     .shown_default = "8", .help = "the update is multiplied by alpha / r"},
    {.name = "lora-dropout", .type = FSDP_OPTION_DOUBLE, PLACE(lora_dropout), .value = "0",
     .bounds = FSDP_FROM_TO_BELOW(0, 1), .help = "dropout of the update's input"},
    {.name = "lora-target-modules", .aliases = "target-modules", .type = FSDP_OPTION_LIST,
     PLACE(lora_target_modules), .metavar = "NAME,...",
     .shown_default = "PEFT's for the model: q_proj,v_proj; q,v; query,value; c_attn",
     .help = "layers with an adapter: last parts of their names, or one regular expression for "
             "whole names, or all-linear"},
    {.name = "lora-exclude-modules", .aliases = "exclude-modules", .type = FSDP_OPTION_LIST,
     PLACE(lora_exclude_modules), .metavar = "NAME,...",
     .help = "layers that get no adapter although they are targets"},
    {.name = "lora-layers-to-transform", .aliases = "layers-to-transform",
     .type = FSDP_OPTION_LIST, PLACE(lora_layers_to_transform), .metavar = "INDEX,...",
     .help = "only these blocks get adapters, counted from 0"},
    {.name = "lora-modules-to-save", .aliases = "modules-to-save", .type = FSDP_OPTION_LIST,
     PLACE(lora_modules_to_save), .metavar = "NAME,...",
     .help = "modules that are trained whole and saved with the adapter; a new classifier is "
             "always one of them"},
    {.name = "lora-bias", .type = FSDP_OPTION_CHOICE, PLACE(lora_bias), .value = "none",
     .choices = lora_biases, .help = "biases of the model that are trained, too"},
    {.name = "use-rslora", .type = FSDP_OPTION_BOOL, PLACE(use_rslora),
     .help = "multiply the update by alpha / sqrt(r) instead"},
    {.name = "use-dora", .type = FSDP_OPTION_BOOL, PLACE(use_dora),
     .help = "DoRA: train the norms of the rows of the updated weights, too"},
    {.name = "init-lora-weights", .type = FSDP_OPTION_CHOICE, PLACE(init_lora_weights),
     .value = "kaiming", .choices = lora_inits,
     .help = "first values of A: kaiming is PEFT's true, uniform within 1 / sqrt(in); gaussian has "
             "the standard deviation 1 / r. B is zero. An adapter of pissa is made by 'fsdp checkpoint init-adapter'"},
    {.name = "adapter", .type = FSDP_OPTION_STRING, PLACE(adapter), .metavar = "DIR",
     .help = "go on training the adapter in this folder, which PEFT or this command wrote"},
    FSDP_QUANTIZE_OPTIONS(offsetof(fsdp_train_config, quantize)),

    {.name = "epochs", .aliases = "num-train-epochs,num-epochs,number-epochs,max-epochs",
     .type = FSDP_OPTION_DOUBLE, PLACE(epochs), .value = "2", .bounds = FSDP_ABOVE(0),
     .infinite = true, .group = "training", .help = "passes over the training rows; 0.5: half of one"},
    {.name = "max-steps", .aliases = "max-step", .type = FSDP_OPTION_INT64, PLACE(max_steps),
     .value = "-1", .bounds = FSDP_AT_LEAST(-1), .shown_default = "-1, until the epochs end",
     .help = "stop after N optimizer steps; without --epochs, run as many epochs as these take"},
    {.name = "batch-size", .aliases = "per-device-train-batch-size,train-batch-size,"
     "per-gpu-train-batch-size,micro-batch-size,batch-size-training", .type = FSDP_OPTION_INT, PLACE(batch_size), .value = "4",
     .bounds = FSDP_BETWEEN(1, 1048576), .help = "rows per rank and micro-step"},
    {.name = "validation-batch-size",
     .aliases = "test-batch-size,eval-batch-size,per-device-eval-batch-size,"
     "per-gpu-eval-batch-size,val-batch-size",
     .type = FSDP_OPTION_INT, PLACE(validation_batch_size), .value = "4",
     .bounds = FSDP_BETWEEN(1, 1048576), .help = "rows per rank in validation"},
    {.name = "gradient-accumulation-steps", .type = FSDP_OPTION_INT,
     PLACE(gradient_accumulation_steps), .value = "1",
     .env = "FSDP_GRADIENT_ACCUMULATION_STEPS,ACCELERATE_GRADIENT_ACCUMULATION_STEPS", .bounds = FSDP_BETWEEN(1, 65536),
     .help = "micro-steps per optimizer step"},
    {.name = "gradient-accumulation-mode", .type = FSDP_OPTION_CHOICE, PLACE(accumulation_mode),
     .value = "reduce", .choices = accumulations, .metavar = "MODE",
     .help = "what micro-steps before the last one communicate: gradients are reduced (least "
             "memory, the same bits however the batch is split), with HYBRID_SHARD only within "
             "replicas, or not at all (every rank holds whole gradients)"},
    {.name = "sync-each-batch", .type = FSDP_OPTION_BOOL, PLACE(sync_each_batch), .value = "true",
     .help = "Accelerate's name: --no-sync-each-batch is --gradient-accumulation-mode no-sync"},
    {.name = "seed", .type = FSDP_OPTION_INT64, PLACE(seed), .value = "1",
     .bounds = FSDP_AT_LEAST(0), .help = "seed of the order of rows, dropout and random weights"},
    {.name = "data-seed", .type = FSDP_OPTION_INT64, PLACE(data_seed), .value = "-1",
     .bounds = FSDP_AT_LEAST(-1), .shown_default = "-1, --seed",
     .help = "seed of the order of rows, if it differs from --seed"},
    {.name = "sampler", .type = FSDP_OPTION_CHOICE, PLACE(sampler), .value = "default",
     .choices = samplers, .metavar = "KIND",
     .help = "which training rows a rank takes; default does not depend on the number of ranks, "
             "distributed is PyTorch's DistributedSampler, which repeats some rows. Validation "
             "always takes each row once"},
    {.name = "shuffle", .type = FSDP_OPTION_BOOL, PLACE(shuffle), .value = "true",
     .help = "shuffle the training rows in each epoch; --no-shuffle keeps the file's order"},
    {.name = "train-sampling-strategy", .type = FSDP_OPTION_CHOICE,
     PLACE(train_sampling_strategy), .value = "random", .choices = samplings, .metavar = "KIND",
     .help = "transformers' spelling: sequential is --no-shuffle; group_by_length is random, since "
             "packed rows need no padding"},
    {.name = "drop-last", .aliases = "dataloader-drop-last", .type = FSDP_OPTION_BOOL,
     PLACE(drop_last), .value = "false", .help = "leave out the last rows if they do not fill a step of all ranks and micro-steps "
             "(--sampler distributed: a batch of each rank, as PyTorch does)"},
    {.name = "num-workers", .aliases = "dataloader-num-workers", .type = FSDP_OPTION_INT,
     PLACE(num_workers), .value = "2", .bounds = FSDP_BETWEEN(0, 256),
     .help = "threads per rank that read and tokenize ahead; 0: none"},
    {.name = "loss-reduction", .type = FSDP_OPTION_CHOICE, PLACE(loss_reduction),
     .value = "token-mean", .choices = reductions, .metavar = "KIND",
     .help = "mean over the label tokens of the global batch, or mean of the micro-batches' "
             "means as PyTorch's scripts compute it"},
    {.name = "label-smoothing", .aliases = "label-smoothing-factor", .type = FSDP_OPTION_DOUBLE,
     PLACE(label_smoothing), .value = "0", .bounds = FSDP_FROM_TO_BELOW(0, 1),
     .help = "share X of each label's probability that is spread over all tokens or classes, as by "
             "transformers' Trainer; the validation loss has it too"},
    {.name = "tutorial-loss", .type = FSDP_OPTION_BOOL, PLACE(tutorial_loss),
     .help = "the same as --loss-reduction mean-of-means"},

    {.name = "optimizer", .aliases = "optim", .type = FSDP_OPTION_CHOICE, PLACE(optimizer),
     .value = "adamw", .choices = optimizers, .metavar = "KIND",
     .group = "optimizer and learning rate",
     .help = "how weights are updated; adam: weight decay is added to the gradient; adamw_8bit: "
             "AdamW with moments in 8 bits, about 2 bytes a parameter instead of 8; muon: Muon for "
             "the matrices of blocks, AdamW for all other parameters; schedule_free_adamw: "
             "Schedule-Free AdamW, with a constant rate after --warmup-steps instead of a "
             "schedule"},
    {.name = "lr", .aliases = "learning-rate", .type = FSDP_OPTION_DOUBLE, PLACE(lr),
     .bounds = FSDP_AT_LEAST(0), .shown_default = "seq2seq: 0.002, the FSDP tutorial's; "
     "other tasks: 2e-5", .help = "learning rate"},
    {.name = "weight-decay", .type = FSDP_OPTION_DOUBLE, PLACE(weight_decay), .value = "0.01",
     .bounds = FSDP_AT_LEAST(0), .shown_default = "adamw and adamw_8bit: 0.01; muon: 0.1; others: 0",
     .help = "weight decay of all parameters except those of --no-decay"},
    {.name = "no-decay", .type = FSDP_OPTION_LIST, PLACE(no_decay), .metavar = "WORD,...",
     .shown_default = "none, as in PyTorch's scripts",
     .help = "parameters whose names contain one of these words, ignoring case, form a group "
             "without weight decay: bias,LayerNorm.weight. auto: those that transformers' "
             "Trainer leaves out, norms, biases and vectors"},
    {.name = "momentum", .type = FSDP_OPTION_DOUBLE, PLACE(momentum), .value = "0",
     .bounds = FSDP_AT_LEAST(0), .shown_default = "0; muon: 0.95", .help = "sgd and muon only"},
    {.name = "dampening", .type = FSDP_OPTION_DOUBLE, PLACE(dampening), .value = "0",
     .bounds = FSDP_AT_LEAST(0),
     .help = "sgd only: dampening of the gradient that is added to the momentum"},
    {.name = "nesterov", .type = FSDP_OPTION_BOOL, PLACE(nesterov),
     .shown_default = "false; muon: true", .help = "sgd and muon only: Nesterov's momentum"},
    {.name = "adjust-lr-fn", .type = FSDP_OPTION_CHOICE, PLACE(adjust_lr_fn),
     .value = "match_rms_adamw", .choices = adjustments, .metavar = "KIND",
     .help = "muon only: the factor of the rate of a matrix, as torch.optim.Muon has it. "
             "match_rms_adamw: updates are as large as AdamW's, so that one --lr fits both; "
             "original, torch's default: sqrt(max(1, rows / columns))"},
    {.name = "ns-steps", .type = FSDP_OPTION_INT, PLACE(ns_steps), .value = "5",
     .bounds = FSDP_BETWEEN(0, 99),
     .help = "muon only: steps of the Newton-Schulz iteration, which makes an update orthogonal"},
    {.name = "ns-coefficients", .type = FSDP_OPTION_LIST, PLACE(ns_coefficients),
     .value = "3.4445,-4.775,2.0315", .metavar = "A,B,C",
     .help = "muon only: coefficients of the Newton-Schulz iteration"},
    {.name = "weight-lr-power", .type = FSDP_OPTION_DOUBLE, PLACE(weight_lr_power), .value = "2",
     .metavar = "P",
     .help = "schedule_free_adamw only: a step's weight in the average is the largest rate so far "
             "to the power P"},
    {.name = "schedule-free-r", .type = FSDP_OPTION_DOUBLE, PLACE(schedule_free_r), .value = "0",
     .metavar = "R",
     .help = "schedule_free_adamw only: the weight of step t also has the factor t to the power R"},
    {.name = "beta1", .aliases = "adam-beta1", .type = FSDP_OPTION_DOUBLE, PLACE(beta1),
     .value = "0.9", .bounds = FSDP_FROM_TO_BELOW(0, 1),
     .help = "adamw, adam, adamw_8bit, muon and schedule_free_adamw only: decay of the first "
             "moment"},
    {.name = "beta2", .aliases = "adam-beta2", .type = FSDP_OPTION_DOUBLE, PLACE(beta2),
     .value = "0.999", .bounds = FSDP_FROM_TO_BELOW(0, 1),
     .help = "adamw, adam, adamw_8bit, muon and schedule_free_adamw only: decay of the second "
             "moment"},
    {.name = "eps", .aliases = "adam-epsilon", .type = FSDP_OPTION_DOUBLE, PLACE(eps),
     .value = "1e-8", .bounds = FSDP_AT_LEAST(0),
     .help = "adamw, adam, adamw_8bit, muon and schedule_free_adamw only: added to the divisor of "
             "an update"},
    {.name = "scale-parameter", .type = FSDP_OPTION_BOOL, PLACE(scale_parameter),
     .help = "adafactor only: multiply the rate by the root mean square of the parameter"},
    {.name = "relative-step", .type = FSDP_OPTION_BOOL, PLACE(relative_step),
     .help = "adafactor only: the rate is min(1e-2, 1 / sqrt(step)), without --lr and schedule"},
    {.name = "warmup-init", .type = FSDP_OPTION_BOOL, PLACE(warmup_init),
     .help = "adafactor only: the rate of --relative-step begins with 1e-6 times the step"},
    {.name = "clip-threshold", .type = FSDP_OPTION_DOUBLE, PLACE(clip_threshold), .value = "1",
     .bounds = FSDP_ABOVE(0),
     .help = "adafactor only: scale down an update whose root mean square is larger than this"},
    {.name = "decay-rate", .type = FSDP_OPTION_DOUBLE, PLACE(decay_rate), .value = "-0.8",
     .bounds = FSDP_BETWEEN(-1000, 0),
     .help = "adafactor only: in step t the average of squared gradients has the factor 1 - t^X"},
    {.name = "adafactor-eps1", .aliases = "eps1", .type = FSDP_OPTION_DOUBLE,
     PLACE(adafactor_eps1), .value = "1e-30", .bounds = FSDP_AT_LEAST(0),
     .help = "adafactor only: added to squared gradients"},
    {.name = "adafactor-eps2", .aliases = "eps2", .type = FSDP_OPTION_DOUBLE,
     PLACE(adafactor_eps2), .value = "1e-3", .bounds = FSDP_AT_LEAST(0),
     .help = "adafactor only: smallest root mean square that --scale-parameter multiplies by"},
    {.name = "adafactor-beta1", .type = FSDP_OPTION_DOUBLE, PLACE(adafactor_beta1),
     .bounds = FSDP_FROM_TO_BELOW(0, 1), .shown_default = "none",
     .help = "adafactor only: decay of a first moment, which is kept only if this is given"},
    {.name = "max-grad-norm", .aliases = "grad-clip,clip-grad-norm", .type = FSDP_OPTION_DOUBLE,
     PLACE(max_grad_norm), .value = "0", .bounds = FSDP_AT_LEAST(0),
     .shown_default = "0, no clipping", .help = "scale gradients down to this global norm"},
    {.name = "grad-norm-type", .aliases = "norm-type", .type = FSDP_OPTION_DOUBLE,
     PLACE(grad_norm_type), .value = "2", .bounds = FSDP_ABOVE(0), .infinite = true,
     .metavar = "P", .help = "p of the gradient norm; inf: the largest magnitude"},
    {.name = "error-if-nonfinite", .type = FSDP_OPTION_BOOL, PLACE(error_if_nonfinite),
     .value = "true",
     .help = "end the run if the gradient norm is infinite or NaN, naming the first such "
             "gradient; --no-error-if-nonfinite scales by it, as clip_grad_norm_ does: weights "
             "become NaN, and the next step ends the run because its loss is NaN, too"},
    {.name = "clip-value", .aliases = "clip-grad-value", .type = FSDP_OPTION_DOUBLE,
     PLACE(clip_value), .value = "0", .bounds = FSDP_AT_LEAST(0),
     .shown_default = "0, no clipping", .help = "limit each element of the gradients to +-X"},
    {.name = "init-scale", .aliases = "initial-loss-scale", .type = FSDP_OPTION_DOUBLE,
     PLACE(init_scale), .value = "65536", .bounds = FSDP_ABOVE(0),
     .help = "float16: initial factor of losses; it is reduced when gradients overflow, and "
             "that update is skipped"},
    {.name = "growth-interval", .aliases = "loss-scale-window", .type = FSDP_OPTION_INT,
     PLACE(growth_interval), .value = "2000", .bounds = FSDP_AT_LEAST(1),
     .help = "float16: steps without overflow after which the loss scale grows"},
    {.name = "growth-factor", .type = FSDP_OPTION_DOUBLE, PLACE(growth_factor), .value = "2",
     .bounds = FSDP_ABOVE(1), .help = "float16: factor by which the loss scale grows"},
    {.name = "backoff-factor", .type = FSDP_OPTION_DOUBLE, PLACE(backoff_factor), .value = "0.5",
     .bounds = {.set = true, .min = 0, .max = 1, .above = true, .below = true},
     .help = "float16: factor by which the loss scale is multiplied when gradients overflow"},
    {.name = "lr-schedule", .aliases = "lr-scheduler-type,lr-scheduler",
     .type = FSDP_OPTION_CHOICE, PLACE(lr_schedule), .value = "step", .choices = schedules,
     .metavar = "KIND", .shown_default = "seq2seq: step; causal-lm: cosine; classification, masked-lm: linear",
     .help = "how the learning rate changes; inverse-sqrt: the factor is 1 / sqrt(1 + steps "
             "after the warmup / T), where T is the number of warmup steps, or 10000 without a "
             "warmup"},
    {.name = "schedule-unit", .type = FSDP_OPTION_CHOICE, PLACE(schedule_unit), .value = "epoch",
     .choices = units, .metavar = "UNIT", .shown_default = "epoch for --lr-schedule step, else step",
     .help = "when the schedule advances"},
    {.name = "gamma", .type = FSDP_OPTION_DOUBLE, PLACE(gamma), .value = "0.7",
     .bounds = FSDP_AT_LEAST(0), .help = "factor of the step schedule"},
    {.name = "step-size", .type = FSDP_OPTION_INT, PLACE(step_size), .value = "1",
     .bounds = FSDP_AT_LEAST(1),
     .help = "number of schedule units after which the step schedule applies its factor"},
    {.name = "warmup-steps", .aliases = "num-warmup-steps", .type = FSDP_OPTION_DOUBLE,
     PLACE(warmup_steps), .value = "0", .bounds = FSDP_BETWEEN(0, 1e15),
     .help = "optimizer steps in which the rate rises from 0; below 1: a fraction of all steps"},
    {.name = "warmup-ratio", .type = FSDP_OPTION_DOUBLE, PLACE(warmup_ratio), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1),
     .help = "warmup as a fraction of all steps; --warmup-steps takes precedence"},
    {.name = "min-lr", .aliases = "lr-end", .type = FSDP_OPTION_DOUBLE, PLACE(min_lr), .value = "0",
     .bounds = FSDP_AT_LEAST(0), .shown_default = "0; polynomial: 1e-7, transformers' lr_end",
     .help = "last rate of linear, cosine, polynomial and cosine-with-restarts; without "
             "--lr-schedule it implies cosine"},
    {.name = "min-lr-rate", .type = FSDP_OPTION_DOUBLE, PLACE(min_lr_rate), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1), .help = "--min-lr as a fraction of --lr"},
    {.name = "lr-power", .aliases = "power", .type = FSDP_OPTION_DOUBLE, PLACE(lr_power),
     .value = "1", .bounds = FSDP_ABOVE(0), .help = "polynomial only: the exponent"},
    {.name = "num-cycles", .type = FSDP_OPTION_DOUBLE, PLACE(num_cycles), .value = "1",
     .bounds = FSDP_ABOVE(0),
     .help = "cosine-with-restarts only: number of half cosines after the warmup"},
    {.name = "lr-decay", .type = FSDP_OPTION_BOOL, PLACE(lr_decay), .optional = true,
     .help = "another spelling of --lr-schedule cosine, or of constant if false"},

    {.name = "sharding-strategy", .aliases = "fsdp-sharding-strategy",
     .type = FSDP_OPTION_CHOICE, PLACE(sharding_strategy), .value = "FULL_SHARD",
     .choices = fsdp_sharding_strategy_choices, .metavar = "KIND", .group = "sharding and numbers",
     .help = "what is sharded; HYBRID_: shard among the ranks of a replica and keep equal "
             "replicas"},
    {.name = "fsdp", .type = FSDP_OPTION_STRING, PLACE(fsdp), .metavar = "'WORD ...'",
     .bare = "full_shard", .takes_words = true, .optional = true, .shown_default = "what the other options say",
     .help = "transformers' spelling: full_shard, shard_grad_op, hybrid_shard, "
             "hybrid_shard_zero2 and no_shard are strategies, offload is --cpu-offload, "
             "auto_wrap the default units. --fsdp-config FILE.json is read like --config"},
    {.name = "shard-size", .aliases = "hybrid-shard-size,data-parallel-shard-degree,"
     "parallelism-config-dp-shard-size",
     .type = FSDP_OPTION_INT, PLACE(shard_size), .value = "0", .bounds = FSDP_AT_LEAST(-1),
     .env = "FSDP_SHARD_SIZE,PARALLELISM_CONFIG_DP_SHARD_SIZE",
     .shown_default = "the ranks of a host",
     .help = "HYBRID_SHARD: ranks that each replica is sharded over, a divisor of the number of "
             "ranks; -1: the number of ranks divided by --replicas"},
    {.name = "replicas", .aliases = "data-parallel-replicate-degree,dp-replicate,"
     "parallelism-config-dp-replicate-size",
     .type = FSDP_OPTION_INT, PLACE(replicas), .value = "0", .bounds = FSDP_AT_LEAST(0),
     .env = "FSDP_REPLICAS,PARALLELISM_CONFIG_DP_REPLICATE_SIZE",
     .shown_default = "ranks / --shard-size", .help = "HYBRID_SHARD: number of replicas"},
    {.name = "reshard-after-forward", .aliases = "fsdp-reshard-after-forward",
     .type = FSDP_OPTION_BOOL_OR_INT, PLACE(reshard_after_forward), .value = "true",
     .bounds = FSDP_BETWEEN(0, 1048576), .shown_default = "true with FULL_SHARD",
     .choices = fsdp_sharding_strategy_choices,
     .help = "free a block's whole parameters between forward and backward; N: keep them "
             "sharded among N ranks, where N divides the number of ranks; also takes a "
             "--sharding-strategy, which Accelerate writes here"},
    {.name = "backward-prefetch", .aliases = "fsdp-backward-prefetch,fsdp-backward-prefetch-policy",
     .type = FSDP_OPTION_CHOICE, PLACE(backward_prefetch), .value = "BACKWARD_PRE",
     .choices = fsdp_backward_prefetch_choices, .metavar = "WHEN",
     .help = "gather the next block of backward before the current one computes, after it, or "
             "when it is needed"},
    {.name = "forward-prefetch", .aliases = "fsdp-forward-prefetch", .type = FSDP_OPTION_BOOL,
     PLACE(forward_prefetch), .false_is_silence = true, .shown_default = "the next block of the last forward",
     .help = "prefetch in the order of the first iteration, which later ones must keep; "
             "--no-forward-prefetch: gather when needed"},
    {.name = "explicit-prefetching", .aliases = "explicit-prefetch", .type = FSDP_OPTION_BOOL,
     PLACE(explicit_prefetching), .shown_default = "true with --forward-prefetch-depth or "
                                                   "--backward-prefetch-depth",
     .help = "prefetch as in the FSDP2 tutorial: each block gathers the next two in forward and "
             "the two before it in backward, by set_modules_to_forward_prefetch and _backward_, "
             "and a step begins with unshard()"},
    {.name = "forward-prefetch-depth", .aliases = "num-to-forward-prefetch",
     .type = FSDP_OPTION_INT, PLACE(forward_prefetch_depth), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1048576), .shown_default = "2 with --explicit-prefetching, else 0",
     .help = "number of blocks that each block gathers ahead in forward; 0: the implicit next "
             "block; more than two need --no-limit-all-gathers"},
    {.name = "backward-prefetch-depth", .aliases = "num-to-backward-prefetch",
     .type = FSDP_OPTION_INT, PLACE(backward_prefetch_depth), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1048576), .shown_default = "2 with --explicit-prefetching, else 0",
     .help = "number of blocks that each block gathers ahead in backward"},
    {.name = "limit-all-gathers", .type = FSDP_OPTION_BOOL, PLACE(limit_all_gathers),
     .value = "true", .help = "gather at most two blocks ahead"},
    {.name = "auto-wrap-policy", .aliases = "fsdp-auto-wrap-policy,wrap-policy",
     .type = FSDP_OPTION_CHOICE, PLACE(auto_wrap_policy), .value = "TRANSFORMER_BASED_WRAP",
     .choices = wrap_policies, .metavar = "POLICY",
     .shown_default = "TRANSFORMER_BASED_WRAP; SIZE_BASED_WRAP with --min-num-params",
     .help = "which modules are gathered and freed as one unit; the numbers do not depend on it"},
    {.name = "transformer-layer-cls-to-wrap", .aliases = "fsdp-transformer-layer-cls-to-wrap,"
     "transformer-cls-to-wrap,fsdp-transformer-cls-to-wrap,transformer-layer-cls", .type = FSDP_OPTION_LIST,
     PLACE(transformer_layer_cls_to_wrap), .metavar = "CLASS,...",
     .env = "FSDP_TRANSFORMER_CLS_TO_WRAP", .optional = true,
     .shown_default = "the model's blocks, and its embedding and head unless they share a weight",
     .help = "TRANSFORMER_BASED_WRAP: classes whose modules are units, possibly nested: "
             "BertLayer,BertEmbeddings,BertSelfOutput. The variable is "
             "FSDP_TRANSFORMER_CLS_TO_WRAP, as Accelerate names it"},
    {.name = "min-num-params", .aliases = "fsdp-min-num-params", .type = FSDP_OPTION_INT64,
     PLACE(min_num_params), .bounds = FSDP_AT_LEAST(0), .optional = true,
     .shown_default = "0, as 100000000",
     .help = "SIZE_BASED_WRAP: a module is a unit if it has at least this many parameters "
             "outside units within it"},
    {.name = "exclude-wrap-modules", .type = FSDP_OPTION_LIST, PLACE(named.exclude_wrap_modules),
     .metavar = "CLASS,...", .shown_default = "ModuleList,ModuleDict",
     .help = "SIZE_BASED_WRAP: classes whose modules are not units"},
    {.name = "force-leaf-modules", .type = FSDP_OPTION_LIST, PLACE(named.force_leaf_modules),
     .metavar = "CLASS,...", .shown_default = "MultiheadAttention",
     .help = "SIZE_BASED_WRAP: classes whose modules are not units and contain none"},
    {.name = "blocks-per-unit", .type = FSDP_OPTION_INT, PLACE(blocks_per_unit), .value = "1",
     .bounds = FSDP_BETWEEN(1, 1048576),
     .help = "number of consecutive modules chosen by the policy that are gathered and freed "
             "together: fully_shard([block0, block1])"},
    {.name = "joint-units", .type = FSDP_OPTION_LIST, PLACE(named.joint_units),
     .metavar = "NAME,...",
     .help = "modules, by name, class or pattern, that are gathered and freed together: "
             "fully_shard([model.embed_tokens, lm_head])"},
    {.name = "ignored-modules", .aliases = "fsdp-ignored-modules", .type = FSDP_OPTION_LIST,
     PLACE(named.ignored_modules), .metavar = "NAME,...",
     .help = "modules, by name, class or pattern (model.layers.[0-3], *.mlp), whose whole "
             "parameters are on every rank; their gradients are not reduced, so they must be "
             "frozen (--frozen-prefixes)"},
    {.name = "ignored-states", .aliases = "ignored-params,ignored-parameters,fsdp-ignored-states",
     .type = FSDP_OPTION_LIST, PLACE(named.ignored_states), .metavar = "NAME,...",
     .help = "parameters, by name or pattern (*.bias), that are kept whole on every rank and must "
             "be frozen, as with --ignored-modules"},
    {.name = "shard-placement", .aliases = "shard-placement-fn", .type = FSDP_OPTION_LIST,
     PLACE(named.shard_placement), .metavar = "NAME:DIM,...", .shown_default = "Shard(0)",
     .help = "parameters, by name or pattern, that are sharded along another dimension: "
             "'*.weight:-1,lm_head.weight:1'. The first match counts"},
    {.name = "unit-mp-policy", .type = FSDP_OPTION_LIST, PLACE(named.unit_mp_policy),
     .metavar = "NAME:DTYPE,...", .shown_default = "the same for all units",
     .help = "units, by name, class or pattern, with a mixed precision policy of their own: "
             "NAME:PARAM_DTYPE[:REDUCE_DTYPE[:OUTPUT_DTYPE]]. The first match counts"},
    {.name = "no-unshard-in-backward", .type = FSDP_OPTION_LIST, PLACE(no_unshard_in_backward),
     .metavar = "NAME,...",
     .help = "units, by name, class or pattern, that are not gathered in backward because none "
             "of their operations reads parameters there (set_unshard_in_backward)"},
    {.name = "reshard-after-backward", .type = FSDP_OPTION_BOOL, PLACE(reshard_after_backward),
     .value = "true",
     .help = "--no-reshard-after-backward keeps all parameters gathered between micro-steps, so "
             "that the next forward gathers nothing but more memory is used"},
    {.name = "set-is-last-backward", .type = FSDP_OPTION_BOOL, PLACE(set_is_last_backward),
     .help = "call set_is_last_backward(false) before the last micro-step: the last reduce of a "
             "backward is not waited for but overlaps with the next one"},
    {.name = "gradient-divide-factor", .aliases = "set-gradient-divide-factor",
     .type = FSDP_OPTION_DOUBLE, PLACE(gradient_divide_factor), .value = "0",
     .bounds = FSDP_AT_LEAST(0),
     .shown_default = "0, what the loss is divided by: all label tokens, or all micro-batches with "
     "mean-of-means",
     .help = "divide the sum of gradients over all ranks and micro-steps by X"},
    {.name = "activation-checkpointing", .aliases = "gradient-checkpointing,"
     "fsdp-activation-checkpointing,apply-activation-checkpointing", .type = FSDP_OPTION_BOOL,
     PLACE(activation_checkpointing),
     .help = "keep only the inputs of each block and recompute the rest in backward: less "
             "memory, more time, the same numbers"},
    {.name = "activation-checkpointing-every", .type = FSDP_OPTION_INT,
     PLACE(activation_checkpointing_every), .value = "1", .bounds = FSDP_BETWEEN(1, 1048576),
     .shown_default = "1, each block", .help = "checkpoint only every N-th block"},
    {.name = "activation-checkpointing-kind", .type = FSDP_OPTION_CHOICE,
     PLACE(activation_checkpointing_kind), .value = "full", .choices = checkpointings,
     .metavar = "KIND",
     .help = "op keeps the results of attention and of every second linear layer and recomputes "
             "the rest, which takes less time than full"},
    {.name = "activation-offload", .aliases = "activation-cpu-offload,"
     "activation-checkpointing-offload,fsdp-activation-checkpointing-offload",
     .type = FSDP_OPTION_BOOL, PLACE(activation_offload),
     .env = "FSDP_ACTIVATION_OFFLOAD,FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
     .help = "keep the inputs of checkpointed blocks in a file until backward"},
    {.name = "cpu-offload", .aliases = "offload-params,fsdp-offload-params,fsdp-cpu-offload",
     .type = FSDP_OPTION_BOOL, PLACE(cpu_offload), .env = "FSDP_CPU_OFFLOAD,FSDP_OFFLOAD_PARAMS",
     .help = "keep master weights and optimizer state in --offload-dir while they are not in "
             "use; without it nothing changes, since they are in the CPU's memory anyway"},
    {.name = "offload-dir", .type = FSDP_OPTION_STRING, PLACE(offload_dir), .metavar = "DIR",
     .shown_default = "none; for activations $TMPDIR, else /tmp",
     .help = "folder for offloaded data, in unnamed files; created if its parent exists. Holds "
             "activations with --activation-offload, master weights and optimizer state with "
             "--cpu-offload; with neither option, master weights and optimizer state. Memory for "
             "the master weights of two or three blocks is then enough, if the disk is fast; the "
             "numbers are the same. NO_SHARD: each rank's file has all frozen parameters"},
    {.name = "param-dtype", .aliases = "param-type", .type = FSDP_OPTION_DTYPE,
     PLACE(param_dtype), .value = "float32",
     .help = "dtype of weights and activations in forward and backward"},
    {.name = "reduce-dtype", .type = FSDP_OPTION_DTYPE, PLACE(reduce_dtype), .value = "float32",
     .help = "dtype in which gradients of ranks are added"},
    {.name = "internode-reduce-dtype", .type = FSDP_OPTION_DTYPE, PLACE(internode_reduce_dtype),
     .optional = true, .shown_default = "float32, with the bits of one host",
     .help = "on several hosts: dtype in which the sum of the gradients of a host's ranks is sent to "
             "other hosts, bfloat16 or float32. With bfloat16, half of the bytes are sent. Results "
             "then no longer have the bits of a run on one host; with float32, they have them only "
             "if a host has 1, 2 or 4 ranks"},
    {.name = "master-dtype", .type = FSDP_OPTION_DTYPE, PLACE(master_dtype), .value = "float32",
     .help = "dtype of the weights that the optimizer updates"},
    {.name = "optimizer-state-dtype", .aliases = "optim-state-dtype", .type = FSDP_OPTION_DTYPE, PLACE(optimizer_state_dtype),
     .value = "float32",
     .help = "dtype of the moments of AdamW and Adam: float32 or bfloat16"},
    {.name = "bf16-stochastic-round", .type = FSDP_OPTION_BOOL, PLACE(bf16_stochastic_round),
     .help = "adamw, adam and adamw_8bit only: round stochastically what is stored in bfloat16, "
             "master weights (--master-dtype bfloat16) and, of adamw and adam, moments "
             "(--optimizer-state-dtype bfloat16), so that small updates are not lost on average; a "
             "function of --seed, with the same bits at any number of ranks"},
    {.name = "output-dtype", .type = FSDP_OPTION_DTYPE, PLACE(output_dtype), .optional = true,
     .shown_default = "as computed", .help = "dtype to which the model's loss is rounded"},
    {.name = "cast-forward-inputs", .type = FSDP_OPTION_BOOL, PLACE(cast_forward_inputs),
     .value = "true", .shown_default = "true; false with the tutorials' policies",
     .help = "cast the inputs of a unit to --param-dtype"},
    {.name = "cast-root-forward-inputs", .type = FSDP_OPTION_BOOL,
     PLACE(cast_root_forward_inputs), .shown_default = "false; true with the tutorials' policies",
     .help = "cast the inputs of the root even without --cast-forward-inputs"},
    {.name = "buffer-dtype", .type = FSDP_OPTION_DTYPE, PLACE(buffer_dtype), .value = "float32",
     .help = "dtype to which the values of rotary tables are rounded"},
    {.name = "mixed-precision", .aliases = "precision", .type = FSDP_OPTION_CHOICE, PLACE(mixed_precision), .value = "no",
     .choices = fsdp_train_precisions, .metavar = "KIND",
     .env = "FSDP_MIXED_PRECISION,ACCELERATE_MIXED_PRECISION",
     .help = "Accelerate's spelling of --param-dtype; Lightning's bf16-true also sets "
             "--master-dtype and --optimizer-state-dtype bfloat16; bfSixteen, fpSixteen, fp32_policy and grad_bf16 are the "
             "FSDP tutorials' policies, which also set --reduce-dtype and --buffer-dtype"},
    {.name = "float8-recipe", .aliases = "float8-recipe-name,quantize.linear.float8.recipe-name",
     .type = FSDP_OPTION_CHOICE, PLACE(float8_recipe), .value = "none", .choices = fsdp_train_float8_recipes,
     .metavar = "NAME",
     .help = "compute linear layers in float8, with this recipe of torchao; master weights, "
             "gradients and the head are not float8. --mixed-precision fp8 is bf16 with tensorwise"},
    {.name = "float8-enable-fsdp-all-gather", .aliases = "enable-fsdp-float8-all-gather,"
     "fp8-enable-fsdp-float8-all-gather,quantize.linear.float8.enable-fsdp-float8-all-gather",
     .type = FSDP_OPTION_BOOL, PLACE(float8_all_gather),
     .env = "ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER",
     .help = "gather these layers' weights in float8, one byte an element; their scales are "
             "computed by one reduction after each step. Only with tensorwise"},
    {.name = "float8-filter-fqns", .aliases = "filter-fqns,quantize.linear.float8.filter-fqns",
     .type = FSDP_OPTION_LIST, PLACE(float8_filter_fqns), .metavar = "TEXT,...",
     .help = "layers whose names contain one of these texts are not computed in float8; "
             "auto_filter_small_kn: nor are small ones, by torchao's sizes for an H100"},
    {.name = "fp8-backend", .type = FSDP_OPTION_CHOICE, PLACE(fp8_backend), .value = "none",
     .choices = fp8_backends, .metavar = "NAME", .env = "ACCELERATE_FP8_BACKEND",
     .help = "Accelerate's: only ao, torchao"},
    {.name = "bf16", .type = FSDP_OPTION_BOOL, PLACE(bf16),
     .help = "compute in bfloat16: the same as --param-dtype bfloat16"},
    {.name = "fp16", .aliases = "use-fp16", .type = FSDP_OPTION_BOOL, PLACE(fp16),
     .help = "the same as --param-dtype float16"},
    FSDP_DEVICE_OPTION(offsetof(fsdp_train_config, device)),
    {.name = "use-cpu", .aliases = "no-cuda,cpu", .type = FSDP_OPTION_BOOL, PLACE(use_cpu),
     .env = "FSDP_USE_CPU,ACCELERATE_USE_CPU", .false_is_silence = true,
     .help = "the same as --device cpu"},
    {.name = "device-id", .type = FSDP_OPTION_STRING, PLACE(device_id), .metavar = "N",
     .help = "FSDP1's name of the card; without effect on the CPU"},
    {.name = "gpu-ids", .type = FSDP_OPTION_LIST, PLACE(gpu_ids), .metavar = "ID,...",
     .env = "FSDP_GPU_IDS", .shown_default = "all",
     .help = "cards that the run may use, as CUDA_VISIBLE_DEVICES says"},
    {.name = "threads-per-rank", .aliases = "num-cpu-threads-per-process",
     .type = FSDP_OPTION_INT, PLACE(threads_per_rank), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1024), .env = FSDP_THREADS_ENV,
     .shown_default = FSDP_THREADS_DEFAULT,
     .help = "compute threads of each rank"},
    {.name = "devices", .type = FSDP_OPTION_STRING, PLACE(devices), .value = "auto",
     .metavar = "N",
     .help = "number of ranks: starts them, as 'fsdp launch -n N' does; an error if another launcher "
             "has started another number"},
    {.name = "isa", .type = FSDP_OPTION_STRING, PLACE(isa), .metavar = "ISA",
     .shown_default = "the best that 'fsdp --version' lists",
     .help = FSDP_ISA_HELP},

    {.name = "output", .aliases = "output-dir", .type = FSDP_OPTION_STRING, PLACE(output),
     .metavar = "DIR", .group = "output", .help = "folder for the trained model"},
    {.name = "overwrite-output", .aliases = "overwrite-output-dir", .type = FSDP_OPTION_BOOL,
     PLACE(overwrite_output), .help = "replace an existing model"},
    {.name = "save-model", .type = FSDP_OPTION_BOOL, PLACE(save_model), .value = "true",
     .help = "save the model each time validation improves or, without validation, at the end"},
    {.name = "run-validation", .aliases = "do-eval", .type = FSDP_OPTION_BOOL, PLACE(run_validation), .value = "true",
     .shown_default = "true with --validation-data", .help = "measure the validation loss"},
    {.name = "evaluation-steps", .aliases = "eval-steps",
     .type = FSDP_OPTION_DOUBLE, PLACE(evaluation_steps), .metavar = "N", .value = "0",
     .bounds = FSDP_BETWEEN(0, 1e15), .shown_default = "0, after each epoch",
     .help = "optimizer steps between validations; below 1: a fraction of all steps"},
    {.name = "eval-step-interval", .type = FSDP_OPTION_DOUBLE, PLACE(eval_step_interval),
     .metavar = "N", .value = "0", .bounds = FSDP_BETWEEN(0, 1e15), .shown_default = "0, none",
     .help = "validate every N optimizer steps and after each epoch, never twice at a step"},
    {.name = "eval-iters", .aliases = "limit-val-batches",
     .type = FSDP_OPTION_INT64, PLACE(eval_iters), .metavar = "N", .value = "0",
     .bounds = FSDP_BETWEEN(0, 1e15), .shown_default = "0, all",
     .help = "validate on the first N batches of each rank only"},
    {.name = "eval-strategy", .aliases = "evaluation-strategy", .type = FSDP_OPTION_CHOICE,
     PLACE(eval_strategy), .value = "epoch", .choices = strategies, .metavar = "WHEN",
     .shown_default = "steps with --evaluation-steps, else epoch",
     .help = "when to validate; no: not during training, and after it only with --do-eval"},
    {.name = "eval-on-start", .type = FSDP_OPTION_BOOL, PLACE(eval_on_start), .value = "false",
     .help = "validate before the first step, too; this validation saves no model"},
    {.name = "save-steps", .aliases = "checkpoint-steps,save-step-interval", .type = FSDP_OPTION_DOUBLE,
     PLACE(save_steps), .metavar = "N", .value = "0", .bounds = FSDP_BETWEEN(0, 1e15), .shown_default = "0, none; 500 "
     "with --save-strategy steps", .group = "checkpoints",
     .help = "optimizer steps between checkpoints of model, optimizer and position, from which "
             "a run continues with the same bits; one is also written on interruption. Below 1: "
             "a fraction of all steps"},
    {.name = "save-strategy", .type = FSDP_OPTION_CHOICE, PLACE(save_strategy), .value = "no",
     .choices = save_strategies, .metavar = "WHEN", .shown_default = "steps with --save-steps, "
     "else no", .help = "when a checkpoint is written"},
    {.name = "save-total-limit", .type = FSDP_OPTION_INT64, PLACE(save_total_limit), .value = "0",
     .bounds = FSDP_AT_LEAST(0), .shown_default = "0, all",
     .help = "keep the newest N checkpoints; older ones are removed when a newer one is "
             "complete"},
    {.name = "async-save", .aliases = "async-checkpoint", .type = FSDP_OPTION_BOOL,
     PLACE(async_save),
     .help = "write checkpoints while training continues: later steps copy what they change "
             "before it is written, using up to 256 MiB of memory a host, or wait"},
    {.name = "checkpoint-dir", .aliases = "checkpoint-folder", .type = FSDP_OPTION_STRING,
     PLACE(checkpoint_dir), .metavar = "DIR", .shown_default = "--output with -checkpoints "
     "appended", .help = "folder of the checkpoint-<step> folders"},
    {.name = "state-dict-type", .aliases = "fsdp-state-dict-type", .type = FSDP_OPTION_CHOICE,
     PLACE(state_dict_type), .value = "SHARDED_STATE_DICT", .choices = state_dict_types,
     .metavar = "KIND",
     .help = "what a checkpoint holds: the ranks' shards as a folder of "
             "torch.distributed.checkpoint; FULL_STATE_DICT: whole tensors in .pt files that "
             "rank 0 writes; LOCAL_STATE_DICT: one file for each rank, which can be resumed only "
             "with the same number of ranks"},
    {.name = "checkpoint-format", .type = FSDP_OPTION_CHOICE, PLACE(checkpoint_format),
     .value = "fsdp", .choices = checkpoint_formats, .metavar = "FORMAT",
     .help = "names of files and folders of a checkpoint; accelerate: those of Accelerate's "
             "save_state(), which its load_state() reads; accelerate-0.24: with the older name "
             "pytorch_model_0"},
    {.name = "resume", .aliases = "resume-from-checkpoint", .type = FSDP_OPTION_STRING,
     PLACE(resume), .metavar = "[auto|DIR]", .bare = "auto",
     .help = "continue from the newest complete checkpoint (auto, true; start from the "
             "beginning if there is none), or from this folder or file of torch.save, which "
             "PyTorch, Accelerate or transformers' Trainer may have saved"},
    {.name = "checkpoint", .type = FSDP_OPTION_STRING, PLACE(checkpoint), .metavar = "DIR",
     .help = "with --resume true: the checkpoint to continue from"},
    {.name = "resume-step", .type = FSDP_OPTION_INT64, PLACE(resume_step), .value = "-1",
     .bounds = FSDP_AT_LEAST(-1), .shown_default = "-1, from the checkpoint",
     .help = "optimizer steps before --resume DIR was saved, where data and schedule continue: "
             "needed if another program saved it with SGD, which does not count steps"},

    {.name = "logging-steps", .group = "output", .type = FSDP_OPTION_DOUBLE, PLACE(logging_steps), .value = "10",
     .metavar = "N", .bounds = FSDP_ABOVE_UP_TO(0, 1e15),
     .help = "optimizer steps between progress lines when stdout is not a terminal; below 1: a "
             "fraction of all steps"},
    {.name = "logging-strategy", .type = FSDP_OPTION_CHOICE, PLACE(logging_strategy),
     .value = "steps", .choices = strategies, .metavar = "WHEN",
     .help = "epoch, no: print one line for each epoch only"},
    {.name = "memory-limit", .type = FSDP_OPTION_SIZE, PLACE(memory_limit), .value = "0",
     .bounds = FSDP_AT_LEAST(0), .metavar = "SIZE", .shown_default = "0, none",
     .help = "limit on the memory of all ranks of a host together or, on cards, on the memory of "
             "a card's tensors. The run is planned first. If it needs more, it is refused, and "
             "the message says how much it needs and what would fit"},
    {.name = "track-memory", .type = FSDP_OPTION_BOOL, PLACE(track_memory), .value = "true",
     .help = "report memory by purpose"},
    {.name = "print-model", .type = FSDP_OPTION_CHOICE, PLACE(print_model), .value = "none",
     .choices = print_models, .metavar = "[FORM]", .bare = "fsdp2",
     .help = "print the module tree with its units, as PyTorch prints an FSDP2 or FSDP1 model"},
    {.name = "metrics", .aliases = "metrics-file", .type = FSDP_OPTION_STRING, PLACE(metrics),
     .metavar = "FILE", .help = "write one JSON line per step and validation"},
    {.name = "rank-metrics", .type = FSDP_OPTION_BOOL, PLACE(rank_metrics), .value = "true",
     .help = "with --metrics or --report-to json: each rank also writes its state, memory, waiting "
             "time and collectives, once a second, into a folder <metrics>.ranks, for 'fsdp "
             "dashboard'"},
    {.name = "dashboard", .type = FSDP_OPTION_BOOL, PLACE(dashboard),
     .help = "serve a page with the curves and ranks of this run to this host, and print its "
             "address; implies --report-to json unless --metrics is given"},
    {.name = "dashboard-port", .type = FSDP_OPTION_INT, PLACE(dashboard_port), .value = "7070",
     .bounds = FSDP_BETWEEN(0, 65535), .metavar = "PORT",
     .help = "port of --dashboard; if it is taken, the next free one; 0: any free port"},
    {.name = "dashboard-stays", .type = FSDP_OPTION_BOOL, PLACE(dashboard_stays),
     .help = "the page of --dashboard is served until its process is ended, also after the run"},
    {.name = "report-to", .aliases = "log-with", .type = FSDP_OPTION_LIST, PLACE(report_to),
     .metavar = "NAME,...", .shown_default = "none",
     .help = "write what --metrics writes to tensorboard (event files), csv, json, or all of these, "
             "in --logging-dir; none: nothing"},
    {.name = "log-histograms", .type = FSDP_OPTION_INT64, PLACE(log_histograms), .value = "0",
     .metavar = "N", .bounds = FSDP_BETWEEN(0, 1e15), .shown_default = "0, none",
     .help = "with --report-to tensorboard: every N optimizer steps, histograms of the weights and "
             "of the gradients of each unit"},
    {.name = "with-tracking", .type = FSDP_OPTION_BOOL, PLACE(with_tracking),
     .help = "Accelerate's spelling of --report-to all"},
    {.name = "logging-dir", .aliases = "project-dir", .type = FSDP_OPTION_STRING,
     PLACE(logging_dir), .metavar = "DIR", .env = "TENSORBOARD_LOGGING_DIR",
     .shown_default = "--output with /runs/<date>_<host> appended",
     .help = "folder for the files of --report-to. The variable is TENSORBOARD_LOGGING_DIR, as "
             "transformers names it"},
    {.name = "tracker-command", .type = FSDP_OPTION_STRING, PLACE(tracker_command),
     .metavar = "CMD",
     .help = "start this shell command on rank 0; it gets the options of the run and then what "
             "--metrics writes as JSON lines on its standard input, for W&B, MLflow and others"},
    {.name = "run-name", .type = FSDP_OPTION_STRING, PLACE(run_name), .metavar = "NAME",
     .help = "name of the run that --tracker-command gets"},
    {.name = "project", .aliases = "project-name", .type = FSDP_OPTION_STRING, PLACE(project),
     .metavar = "NAME", .help = "name of the project that --tracker-command gets"},
    {.name = "profile", .aliases = "profile-trace", .type = FSDP_OPTION_STRING, PLACE(profile),
     .metavar = "FILE.json",
     .help = "write a trace of a few steps of all ranks for chrome://tracing and "
             "ui.perfetto.dev; the time by category is printed at the end"},
    {.name = "profile-steps", .type = FSDP_OPTION_STRING, PLACE(profile_steps), .metavar = "A:B",
     .shown_default = "4:6, or the last three of a shorter run",
     .help = "first and last step that --profile covers"},
    {.name = "plot", .type = FSDP_OPTION_STRING, PLACE(plot), .metavar = "FILE.png",
     .help = "picture of the loss curve (.png, .svg or .pdf), drawn from --metrics at the end"},
    {.name = "generate-examples", .type = FSDP_OPTION_INT, PLACE(generate_examples),
     .value = "0", .bounds = FSDP_BETWEEN(0, 10000),
     .help = "at the end, print generated texts for the first N validation rows; causal-lm: "
             "continuations of the prompt, or of the row's first tokens"},
    {.name = "predict-with-generate", .type = FSDP_OPTION_BOOL, PLACE(predict_with_generate),
     .help = "in each validation, generate a text for each row, and compute ROUGE-1, -2, -L and "
             "-Lsum with the row's target"},
    {.name = "generation-max-length", .type = FSDP_OPTION_INT64, PLACE(generation_max_length),
     .value = "0", .bounds = FSDP_BETWEEN(0, 1048576), .metavar = "N",
     .shown_default = "new tokens: --val-max-target-length",
     .help = "most tokens of a text of --predict-with-generate, including T5's start token or the "
             "prompt of a causal model"},
    {.name = "generation-num-beams", .aliases = "num-beams", .type = FSDP_OPTION_INT64, PLACE(generation_num_beams),
     .value = "0", .bounds = FSDP_BETWEEN(0, 10000), .metavar = "N",
     .shown_default = "generation_config.json's, else 1", .help = "number of beams in the search "
                                                                  "for the texts of "
                                                                  "--predict-with-generate"},
    {.name = "rouge-stemmer", .aliases = "use-stemmer", .type = FSDP_OPTION_BOOL,
     PLACE(rouge_stemmer), .help = "ROUGE compares stems of words, as Hugging Face's summarization "
     "scripts do"},
    {.name = "metric-for-best-model", .type = FSDP_OPTION_CHOICE, PLACE(metric_for_best_model),
     .value = "loss", .choices = best_metrics, .metavar = "NAME",
     .help = "measure of a validation that decides which model is saved: the least loss, or the "
             "greatest of another measure"},
    {.name = "load-best-model-at-end", .type = FSDP_OPTION_BOOL, PLACE(load_best_model_at_end),
     .value = "true",
     .help = "with validation, save the model each time --metric-for-best-model improves; "
             "--no-load-best-model-at-end saves it once, as it is at the end of training"},
    {.name = "greater-is-better", .type = FSDP_OPTION_BOOL, PLACE(greater_is_better),
     .shown_default = "true for all but loss",
     .help = "transformers' spelling: whether a greater measure is better; it must agree with "
             "--metric-for-best-model"},
};
/* clang-format on */

/* What plain --help shows (without a topic): the options that most runs use. */
static const char *const first_page[] = {
    "model and data: model data validation-data validation-split-percentage task text-column "
    "target-column task-prefix max-seq-length",
    "training: epochs max-steps batch-size gradient-accumulation-steps optimizer lr lr-schedule "
    "warmup-steps max-grad-norm",
    "memory and speed: bf16 activation-checkpointing lora-r sharding-strategy device devices",
    "output: output metrics report-to dashboard save-steps resume", NULL};

const fsdp_options_spec *fsdp_train_options(void)
{
    static const fsdp_options_spec spec = {
        .program = "fsdp train",
        .usage = "--model DIR --data FILE --output DIR [options]",
        .summary =
            "Fine-tune a model with fully sharded parameters, gradients and optimizer state. This "
            "command alone is one rank; 'fsdp launch -n N train ...' runs N ranks.",
        .epilogue = "examples:\n"
                    "  fsdp launch -n 2 train --model t5-small --data wikihowAll.csv \\\n"
                    "      --validation-data wikihowVal.csv --output t5-wikihow --bf16\n"
                    "  fsdp launch -n 2 train --model gpt2 --data fineweb10B \\\n"
                    "      --validation-data fineweb10B --document-token 50256 --output out\n",
        .first_page = first_page,
        .table = table,
        .count = FSDP_LENGTH(table),
        .compat = fsdp_train_compat,
        .n_compat = FSDP_TRAIN_COMPAT,
        .config_alias = "fsdp-config",
        .map_flag = "lr-scheduler-kwargs",
        .map_keys = "num_cycles,min_lr,min_lr_rate,lr_end,power",
        .sections = fsdp_accelerate_sections,
        .n_sections = FSDP_ACCELERATE_SECTIONS,
        .other_sections = true,
        .env_named = "ACCELERATE_,PARALLELISM_CONFIG_",
        .derive = fsdp_train_config_derive,
        .check = fsdp_train_config_check,
        .without_effect = fsdp_train_option_without_effect,
    };
    return &spec;
}
