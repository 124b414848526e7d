/* Chooses the weights of a model that are stored in 4 bits, as transformers does for
 * BitsAndBytesConfig(load_in_4bit=True). */
#pragma once
#include <fsdp/hf.h>
#include <fsdp/nn.h>

typedef struct fsdp_quantize_options {
    bool double_quant; /* bnb_4bit_use_double_quant */
    /* [n_skip_modules] llm_int8_skip_modules: modules that keep their dtype. A name selects the
     * modules whose path is this name, begins with this name and a dot, or ends with a dot and this
     * name. The head always keeps its dtype. */
    const char *const *skip_modules;
    size_t n_skip_modules;
} fsdp_quantize_options;

/* What quantization_config of a config.json says. */
typedef struct fsdp_quantize_file {
    bool is_quantized;
    fsdp_quantize_options options;
    char **skip; /* [options.n_skip_modules] the same list as options.skip_modules; owned */
} fsdp_quantize_file;

/* Read quantization_config of the config.json in `dir`. Its form is not checked, because
 * fsdp_model_config_read() has checked it. The caller calls fsdp_quantize_file_fini(), also after a
 * failure. */
FSDP_MUST_CHECK fsdp_status fsdp_quantize_file_read(const char *dir, fsdp_quantize_file *file);
void fsdp_quantize_file_fini(fsdp_quantize_file *file);
/* What is written to a config.json about weights in NF4. */
typedef struct fsdp_quantize_written {
    fsdp_quantize_options options;
    fsdp_dtype compute_dtype;
    fsdp_module *model; /* its heads are listed as modules that keep their dtype */
} fsdp_quantize_written;

/* Write quantization_config to the config.json at `path`. If `written` is NULL, remove
 * quantization_config. */
FSDP_MUST_CHECK fsdp_status fsdp_quantize_config_write(const char *path,
                                                       const fsdp_quantize_written *written);
/* Return true if `module`, whose path is `path`, is a linear layer that these options select. */
bool fsdp_quantize_selects(const fsdp_quantize_options *options, const fsdp_module *module,
                           const char *path);
/* Return FSDP_ERR_UNSUPPORTED if the files of `reader` have a weight of a Conv1D in NF4. This
 * library does not read such weights. `base_prefix` is as in fsdp_load_options. */
FSDP_MUST_CHECK fsdp_status fsdp_quantize_check_files(fsdp_module *model,
                                                      const fsdp_checkpoint_reader *reader,
                                                      const char *base_prefix);
/* Quantize the weights that are in NF4 in the files of `reader`, and freeze them. If `options` is
 * not NULL, also quantize the weights of the linear layers that it selects, except weights that are
 * trained. Call this before the model is sharded.
 *
 * @param reader NULL: there are no files
 * @param base_prefix as in fsdp_load_options
 * @param adapted the model has an adapter, so its parameters that require a gradient are trained
 * @return FSDP_ERR_INVALID if `options` selects no layer, or if a weight in NF4 is to be trained */
FSDP_MUST_CHECK fsdp_status fsdp_quantize_apply(fsdp_module *model,
                                                const fsdp_quantize_options *options,
                                                const fsdp_checkpoint_reader *reader,
                                                const char *base_prefix, bool adapted);
/* Return true if a parameter of the model is stored in 4 bits. */
bool fsdp_model_is_quantized(fsdp_module *model);
