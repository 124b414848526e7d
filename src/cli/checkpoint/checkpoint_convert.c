/* `fsdp checkpoint convert` and `fsdp checkpoint merge-weights`: write a checkpoint in another
 * format. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/shown_text.h"
#include "src/checkpoint_tools/convert.h"
#include "src/checkpoint_tools/quantize_folder.h"
#include "src/cli/checkpoint/checkpoint.h"
#include "src/cli/checkpoint/checkpoint_bar.h"
#include "src/cli/common/cli.h"
#include "src/hf/folder_kind.h"
#include "src/pretrained/lit_weights.h"
#include "src/pretrained/quantize_flags.h"
#include "src/pretrained/weights_fit.h"
#include "src/report/human.h"

typedef struct convert_config {
    int format; /* fsdp_convert_format */
    fsdp_dtype dtype;
    int64_t max_shard_bytes;
    const char *model;
    bool model_only, overwrite;
    fsdp_quantize_flags quantize;
} convert_config;

static const char *const formats[] = {"auto",           "dcp|torch.distributed.checkpoint",
                                      "torch|pt|bin",   "safetensors",
                                      "hf|huggingface", NULL};

static const fsdp_option table[] = {
    {.name = "format",
     .aliases = "to-format",
     .type = FSDP_OPTION_CHOICE,
     .offset = offsetof(convert_config, format),
     .value = "auto",
     .choices = formats,
     .help = "format of TO. auto: torch for names in .pt, .pth and .bin, safetensors for "
             ".safetensors, otherwise the directory of a Hugging Face model (hf); but convert "
             "writes a directory of torch.distributed.checkpoint (dcp) if FROM is a file of "
             "torch.save, which may hold more than a model. With --overwrite, the format that TO "
             "had before does not matter"},
    {.name = "model-only",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(convert_config, model_only),
     .help = "write only the model's state dict; safetensors and hf never contain anything else"},
    {.name = "dtype",
     .type = FSDP_OPTION_DTYPE,
     .offset = offsetof(convert_config, dtype),
     .optional = true,
     .shown_default = "as it is",
     .help = "of the model's floating-point tensors, except those of 8 bits and fewer; the "
             "optimizer's tensors are not changed"},
    {.name = "max-shard-size",
     .type = FSDP_OPTION_SIZE,
     .offset = offsetof(convert_config, max_shard_bytes),
     .value = "50GB",
     .bounds = FSDP_AT_LEAST(1),
     .help = "hf: largest size of a file, unless a single tensor is larger"},
    {.name = "model",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(convert_config, model),
     .metavar = "DIR",
     .help = "hf: folder or hub name of the model that the weights belong to; its config.json, "
             "generation_config.json and tokenizer are copied. By default, they are copied from "
             "the folder of the weights or, for a checkpoint of fsdp train, from the model with "
             "which the run began"},
    {.name = "overwrite",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(convert_config, overwrite),
     .help = "replace the file TO, or the files of the model in the directory TO; other files in "
             "that directory are kept"},
    FSDP_QUANTIZE_OPTIONS(offsetof(convert_config, quantize)),
};

static fsdp_status check_config(void *target, const fsdp_options *options)
{
    const convert_config *c = target;
    if (fsdp_options_given(options, "dtype") && !fsdp_dtype_is_floating(c->dtype))
        return fsdp_error(FSDP_ERR_INVALID, "--dtype %s: a floating-point type is needed",
                          fsdp_dtype_name(c->dtype));
    if (c->quantize.compute_dtype)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "--bnb-4bit-compute-dtype: the files do not depend on it; --dtype sets the "
            "dtype of the other weights");
    FSDP_TRY(fsdp_quantize_flags_check(&c->quantize, FSDP_DTYPE_F32));
    return FSDP_OK;
}

static const fsdp_options_spec spec = {
    .program = "fsdp checkpoint convert",
    .usage = "FROM TO [options]",
    .summary =
        "Write a checkpoint in another format, with another dtype, or cut into other files. "
        "FROM has any format. TO is written completely or not at all; tensors are copied in "
        "pieces, and their checksums are compared. Parts of names that come from "
        "DistributedDataParallel, torch.compile, FSDP1 and activation checkpointing (module., "
        "_orig_mod., _fsdp_wrapped_module., _checkpoint_wrapped_module.) are removed. Weights of "
        "Lit-LLaMA and LitGPT become those of the Hugging Face model that --model names.",
    .epilogue = "examples:\n"
                "  fsdp checkpoint convert out-checkpoints/checkpoint-500 model --model t5-small\n"
                "  fsdp checkpoint convert out-checkpoints/checkpoint-500 checkpoint.pt\n"
                "  fsdp checkpoint convert lit_model.pth model --format hf --model DIR\n"
                "  fsdp checkpoint convert model model-bf16 --dtype bf16\n"
                "  fsdp checkpoint convert model model-dcp --format dcp\n"
                "  fsdp checkpoint convert model model-nf4 --load-in-4bit "
                "--bnb-4bit-use-double-quant\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "FROM TO",
    .min_positional = 2,
    .max_positional = 2,
    .check = check_config,
};

/* --- the conversion --- */

static const char *const format_names[] = {
    [FSDP_CONVERT_DCP] = "torch.distributed.checkpoint",
    [FSDP_CONVERT_TORCH] = "torch.save",
    [FSDP_CONVERT_SAFETENSORS] = "safetensors",
    [FSDP_CONVERT_HF] = "Hugging Face",
};

static void print_result(const char *to, const fsdp_convert_result *r)
{
    printf("%s: %s, %zu tensor%s, %s", to, format_names[r->format], r->tensors,
           r->tensors == 1 ? "" : "s", fsdp_human_bytes(r->bytes).text);
    printf(r->values ? "; %zu plain value%s\n" : "\n", r->values, r->values == 1 ? "" : "s");
}

static void print_note(const char *note, void *context)
{
    fsdp_checkpoint_bar_clear(context);
    char *shown = fsdp_show_lines(note); /* the note contains names from the checkpoint, which
                                            may have control characters */
    fprintf(stderr, "%s: note: %s\n", spec.program, shown ? shown : "out of memory");
    fsdp_free(shown);
}

/* Return the folder or hub name of the model that defines the names of the parameters. This is the
 * model of --model, or else the source, if it is a Hugging Face folder. Returns NULL if there is no
 * such model. */
static const char *model_of(const fsdp_source *source, const fsdp_convert_options *options)
{
    const char *path = fsdp_source_path(source);
    const bool is_folder =
        fsdp_source_format_of(source) == FSDP_SOURCE_HF && fsdp_path_is_directory(path);
    return options->model ? options->model : is_folder ? path : NULL;
}

/* The weights may have longer names than the parameters of the model that model_of() returns. Set
 * *change to what must be removed from the names of the weights. *change does not include the parts
 * that wrappers add, because these are always removed. If options->model is not NULL, set *use to
 * the tensors that the model uses, and return an error if weights do not fit the model. If
 * options->model is NULL, the source itself is the model: it is a Hugging Face folder. In this
 * case, if the weights do not fit its config.json, empty *change and return FSDP_OK. */
static fsdp_status find_names(const fsdp_source *source, const fsdp_convert_options *options,
                              fsdp_name_change *change, fsdp_weights_use *use)
{
    const char *model = model_of(source, options);
    if (!model)
        return FSDP_OK;
    fsdp_status status = fsdp_weights_fit(source, model, change, options->model ? use : NULL);
    if (status != FSDP_OK && !options->model) {
        *change = (fsdp_name_change){0};
        return FSDP_OK;
    }
    if (status == FSDP_OK && *change->prefix)
        fprintf(stderr, "%s: note: all names begin with '%s', which is taken off\n", spec.program,
                fsdp_show_text(change->prefix).text);
    return status;
}

/* Find the model from which training started in the run that wrote `source`. Set *model to the
 * model's folder or hub name, which the caller owns. Set *model to NULL if the model is unknown or
 * does not exist, or if the weights of `source` do not fit the model. */
static fsdp_status find_model_of_run(const fsdp_source *source, char **model)
{
    fsdp_name_change unused;
    FSDP_TRY(fsdp_folder_model_of_run(fsdp_source_path(source), model));
    if (!*model || fsdp_weights_fit(source, *model, &unused, NULL) == FSDP_OK)
        return FSDP_OK;
    fsdp_free(*model);
    *model = NULL;
    return FSDP_OK;
}

/* If the weights in `source` are those of Lit-LLaMA or LitGPT, translate them to the Hugging Face
 * model that model_of() returns. Without such a model, keep the names and print a note, or return
 * FSDP_ERR_INVALID if a Hugging Face folder would be written. */
static fsdp_status translate_lit(fsdp_source *source, const char *to,
                                 const fsdp_convert_options *options)
{
    fsdp_lit_format lit;
    const char *model = model_of(source, options);
    FSDP_TRY(fsdp_source_lit_format(source, &lit));
    if (!lit)
        return FSDP_OK;
    if (model) {
        size_t left_out;
        FSDP_TRY(fsdp_lit_translate_source(source, lit, model, &left_out));
        fprintf(stderr,
                "%s: note: weights of %s: written as the %zu tensors of Hugging Face's model, with "
                "their names and order of rows\n",
                spec.program, fsdp_lit_format_name(lit), fsdp_source_count(source));
        if (left_out)
            fprintf(stderr, "%s: note: only the model is written; %zu other item%s left out\n",
                    spec.program, left_out,
                    left_out == 1 ? " of the file is" : "s of the file are");
        return FSDP_OK;
    }
    if (fsdp_convert_format_of(source, to, options->format) == FSDP_CONVERT_HF)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: weights of %s: give --model DIR, a folder with the config.json of "
                          "this model, so that the tensors get the names and the order of rows of "
                          "Hugging Face's model",
                          fsdp_source_path(source), fsdp_lit_format_name(lit));
    fprintf(stderr,
            "%s: note: the names are those of %s; --format hf --model DIR writes the Hugging Face "
            "folder of this model\n",
            spec.program, fsdp_lit_format_name(lit));
    return FSDP_OK;
}

static fsdp_status take_model_of_run(const fsdp_source *source, const char *to,
                                     fsdp_convert_options *options, char **model)
{
    *model = NULL;
    if (options->model || fsdp_source_format_of(source) == FSDP_SOURCE_HF ||
        fsdp_convert_format_of(source, to, options->format) != FSDP_CONVERT_HF)
        return FSDP_OK;
    FSDP_TRY(find_model_of_run(source, model));
    if (*model)
        fprintf(stderr,
                "%s: note: config.json and tokenizer are those of %s, as trainer_state.json says\n",
                spec.program, *model);
    options->model = *model;
    return FSDP_OK;
}

/* If a Hugging Face folder was written without config.json, print a note, because neither
 * transformers nor --model can load such a folder. */
static void note_no_config(const char *to, const fsdp_convert_result *result)
{
    char *path = fsdp_path_join(to, "config.json");
    if (result->format == FSDP_CONVERT_HF && path && !fsdp_path_exists(path))
        fprintf(stderr,
                "%s: note: %s has no config.json and no tokenizer: give --model, the folder or hub "
                "name of the model, or copy them into it\n",
                spec.program, to);
    fsdp_free(path);
}

/* Set *yes to true if the weights of `source` are those with which Schedule-Free AdamW computes
 * gradients. This is the case if the source has an optimizer whose train_mode is True. */
static fsdp_status are_weights_of_training(fsdp_source *source, bool *yes)
{
    *yes = false;
    for (size_t i = 0; i < fsdp_source_count(source) && !*yes; i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        if (item->dtype_name || !fsdp_ends_with(item->fqn, ".train_mode"))
            continue;
        const fsdp_pickle_value *value;
        FSDP_TRY(fsdp_source_value(source, item, &value));
        *yes = value->kind == FSDP_PICKLE_BOOL && value->boolean;
    }
    return FSDP_OK;
}

/* Schedule-Free AdamW computes gradients with some weights, but validates and saves others: their
 * average. Print a note if the weights for gradients were written without the optimizer's state. */
static fsdp_status note_training_weights(fsdp_source *source, const fsdp_convert_result *result)
{
    bool yes;
    FSDP_TRY(are_weights_of_training(source, &yes));
    if (yes && (result->format == FSDP_CONVERT_HF || result->format == FSDP_CONVERT_SAFETENSORS))
        fprintf(stderr,
                "%s: note: these are the weights at which schedule_free_adamw computes gradients, "
                "not their average, which 'fsdp train' validates and saves: continue the run with "
                "--resume, and its --output has the average\n",
                spec.program);
    return FSDP_OK;
}

/* Convert an open checkpoint and print the result. Returns the exit code. */
static int convert_source(fsdp_source *source, const char *to, fsdp_convert_options *options)
{
    fsdp_convert_result result;
    fsdp_checkpoint_bar bar = {.description = "converting"};
    fsdp_name_change change = {0};
    fsdp_weights_use use = {0};
    char *model;
    if (take_model_of_run(source, to, options, &model) != FSDP_OK)
        return fsdp_cli_failed(spec.program);
    if (translate_lit(source, to, options) != FSDP_OK ||
        find_names(source, options, &change, &use) != FSDP_OK) {
        fsdp_free(model);
        return fsdp_cli_failed(spec.program);
    }
    options->names = &change;
    options->used = use.items;
    options->n_used = use.n;
    options->progress = fsdp_checkpoint_bar_step;
    options->note = print_note;
    options->context = &bar;
    fsdp_status status = fsdp_convert(source, to, options, &result);
    fsdp_checkpoint_bar_end(&bar);
    fsdp_weights_use_free(&use);
    fsdp_free(model);
    if (status != FSDP_OK)
        return fsdp_cli_failed(spec.program);
    print_result(to, &result);
    note_no_config(to, &result);
    if (note_training_weights(source, &result) != FSDP_OK)
        return fsdp_cli_failed(spec.program);
    return FSDP_EXIT_OK;
}

/* Reject --max-shard-size and --model if the target is not a Hugging Face folder. They would have
 * no effect, and the user may have expected a folder. */
static fsdp_status check_given(const fsdp_source *source, const char *to, const fsdp_options *given,
                               const fsdp_convert_options *how)
{
    static const char *const of_folders[] = {"max-shard-size", "model"};
    const fsdp_convert_format format = fsdp_convert_format_of(source, to, how->format);
    for (size_t i = 0; i < FSDP_LENGTH(of_folders) && format != FSDP_CONVERT_HF; i++)
        if (fsdp_options_given(given, of_folders[i]))
            return fsdp_error(FSDP_ERR_INVALID,
                              "--%s: only for a folder of Hugging Face (--format hf); %s would be "
                              "of format %s",
                              of_folders[i], to, format_names[format]);
    return FSDP_OK;
}

/* Open the checkpoint `from` and convert it. Returns the exit code. */
static int convert(const char *from, const char *to, const fsdp_options *given,
                   fsdp_convert_options *how)
{
    fsdp_source *source;
    if (fsdp_source_open(from, &source) != FSDP_OK)
        return fsdp_cli_failed(spec.program);
    int code = check_given(source, to, given, how) == FSDP_OK ? convert_source(source, to, how)
                                                              : fsdp_cli_misused(spec.program);
    fsdp_source_close(source);
    return code;
}

static bool ends_with_one_of(const char *to, const char *const *endings, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fsdp_ends_with(to, endings[i]))
            return true;
    return false;
}

static bool names_a_file(const char *to)
{
    static const char *const endings[] = {".pt", ".pth", ".bin", ".safetensors"};
    return ends_with_one_of(to, endings, FSDP_LENGTH(endings));
}

/* Without --format, reject a target whose name has an ending such as .gguf or .onnx. This program
 * does not write files in these formats. It would write a folder with this name, which cannot be
 * what the user wants. */
static fsdp_status refuse_other_formats(const char *to, fsdp_convert_format format)
{
    static const char *const endings[] = {".gguf", ".ggml", ".onnx", ".h5",  ".msgpack", ".npz",
                                          ".npy",  ".ckpt", ".pkl",  ".zip", ".json"};
    if (format != FSDP_CONVERT_AUTO || fsdp_path_is_directory(to) ||
        !ends_with_one_of(to, endings, FSDP_LENGTH(endings)))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: files of this kind are not written; .pt, .pth and .bin name a file of "
                      "torch.save, .safetensors a safetensors file, other names a folder. --format "
                      "says what to write under this name",
                      to);
}

/* Return the format to write: that of --format, or else a default. For convert, the default is
 * AUTO. For merge-weights, the default is AUTO if `to` has the ending of a file, and a Hugging Face
 * folder otherwise. */
static fsdp_convert_format format_for(const char *command, const convert_config *config,
                                      const char *to)
{
    const bool merges = strcmp(command, "merge-weights") == 0;
    if (config->format != FSDP_CONVERT_AUTO || !merges || names_a_file(to))
        return (fsdp_convert_format)config->format;
    return FSDP_CONVERT_HF;
}

/* Return true if `from` is the folder of a model with weights in NF4. */
static bool is_in_nf4(const char *from)
{
    fsdp_quantize_file file = {0};
    char *path = fsdp_path_join(from, "config.json");
    const bool is = path && fsdp_path_is_file(path) &&
                    fsdp_quantize_file_read(from, &file) == FSDP_OK && file.is_quantized;
    fsdp_quantize_file_fini(&file);
    fsdp_free(path);
    return is;
}

/* Convert the weights of a folder to NF4, or from NF4 to another dtype. Returns the exit code. */
static int convert_folder(const char *from, const char *to, const convert_config *config,
                          const fsdp_convert_options *how)
{
    fsdp_checkpoint_bar bar = {.description = "converting"};
    fsdp_quantize_options quantize;
    fsdp_quantize_folder_result result;
    const fsdp_quantize_folder_options options = {
        .quantize = fsdp_quantize_flags_options(&config->quantize, &quantize),
        .has_dtype = how->has_dtype,
        .dtype = how->dtype,
        .max_shard_bytes = how->max_shard_bytes,
        .overwrite = how->overwrite,
        .progress = fsdp_checkpoint_bar_step,
        .note = print_note,
        .context = &bar};
    const fsdp_status status = fsdp_quantize_folder(from, to, &options, &result);
    fsdp_checkpoint_bar_end(&bar);
    if (status != FSDP_OK)
        return fsdp_cli_failed(spec.program);
    printf("%s: Hugging Face, %zu tensors, %s; %zu weights %s NF4\n", to, result.tensors,
           fsdp_human_bytes(result.bytes).text, result.changed,
           options.quantize ? "in" : "were in");
    return FSDP_EXIT_OK;
}

/* A conversion to or from NF4 can only write a complete Hugging Face folder. Return
 * FSDP_ERR_INVALID if an option contradicts this. */
static fsdp_status check_folder(const char *to, fsdp_convert_format format,
                                const convert_config *config)
{
    if (config->model || config->model_only)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "--%s: weights are converted to or from NF4 in the folder of a model, which "
            "has all that is needed: convert a checkpoint to a folder first",
            config->model ? "model" : "model-only");
    if ((format == FSDP_CONVERT_AUTO && !names_a_file(to)) || format == FSDP_CONVERT_HF)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: weights that are converted to or from NF4 are written to a folder of "
                      "Hugging Face (--format hf)",
                      to);
}

int fsdp_checkpoint_convert(int argc, char **argv)
{
    convert_config config = {0};
    fsdp_options *options;
    int count, code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    char **paths = fsdp_options_positional(options, &count);
    fsdp_convert_options how = {.format = format_for(argv[0], &config, paths[1]),
                                .model_only = config.model_only,
                                .has_dtype = fsdp_options_given(options, "dtype"),
                                .dtype = config.dtype,
                                .max_shard_bytes = config.max_shard_bytes,
                                .model = config.model,
                                .overwrite = config.overwrite};
    const bool changes_nf4 = config.quantize.load_in_4bit || (how.has_dtype && is_in_nf4(paths[0]));
    fsdp_status status = refuse_other_formats(paths[1], how.format);
    if (status == FSDP_OK && changes_nf4)
        status = check_folder(paths[1], how.format, &config);
    if (status != FSDP_OK)
        code = fsdp_cli_misused(spec.program);
    else if (changes_nf4)
        code = convert_folder(paths[0], paths[1], &config, &how);
    else
        code = convert(paths[0], paths[1], options, &how);
    fsdp_options_destroy(options);
    return code;
}
