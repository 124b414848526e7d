/* Functions that build a module tree. If one of them fails, the builder keeps the error, and all
 * later calls do nothing: they accept a NULL parent and return NULL. So the caller checks for
 * errors only once, after all calls. */
#pragma once
#include "src/nn/module.h"

typedef struct fsdp_builder {
    fsdp_status status; /* FSDP_OK, or the status of the first call that failed */
} fsdp_builder;

/* Add a child module to `parent`. The child has no forward and no parameters yet. */
fsdp_module *fsdp_build_module(fsdp_builder *b, fsdp_module *parent, const char *name,
                               const char *class_name);
/* Add item `index` to the ModuleList `list`, as fsdp_build_module() adds a child. The name of the
 * child is the index. */
fsdp_module *fsdp_build_item(fsdp_builder *b, fsdp_module *list, int64_t index,
                             const char *class_name);

/* The parameters of a layer. `bias` is NULL if the layer has none. */
typedef struct fsdp_layer {
    fsdp_parameter *weight, *bias;
} fsdp_layer;

/* Add a torch.nn.Linear. Its weight [out, in] is drawn from N(0, std), its bias is 0. */
fsdp_layer fsdp_build_linear(fsdp_builder *b, fsdp_module *parent, const char *name, int64_t in,
                             int64_t out, bool bias, double std);
/* Add a torch.nn.Embedding whose weight [rows, width] is initialized by `init`. Returns the
 * weight. */
fsdp_parameter *fsdp_build_embedding(fsdp_builder *b, fsdp_module *parent, const char *name,
                                     int64_t rows, int64_t width, fsdp_init init);
/* Add a norm that has a weight but no bias, and return the weight. All elements of the weight are
 * initially `value`. If eps is 0, eps is not shown when the module is printed. */
fsdp_parameter *fsdp_build_rms_norm(fsdp_builder *b, fsdp_module *parent, const char *name,
                                    const char *class_name, int64_t width, double value,
                                    double eps);
/* Add a torch.nn.LayerNorm. Its weight is 1, its bias is 0. */
fsdp_layer fsdp_build_layer_norm(fsdp_builder *b, fsdp_module *parent, const char *name,
                                 int64_t width, double eps);
/* Add a torch.nn.Dropout. The module exists only so that it appears when the model is printed.
 * Forwards read the dropout rate from the configuration, not from this module. */
void fsdp_build_dropout(fsdp_builder *b, fsdp_module *parent, const char *name, double p);
/* Add a parameter to `m`. */
fsdp_parameter *fsdp_build_parameter(fsdp_builder *b, fsdp_module *m, const char *name, int ndim,
                                     const int64_t *shape, fsdp_init init);
/* Add a module of class `class_name` whose weight is the parameter `shared`. */
void fsdp_build_tied(fsdp_builder *b, fsdp_module *parent, const char *name, const char *class_name,
                     fsdp_parameter *shared);
/* Allocate a zeroed struct of `size` bytes as m->impl, and set the forward of m. m owns the
 * struct. */
void *fsdp_build_impl(fsdp_builder *b, fsdp_module *m, fsdp_forward_fn *forward, size_t size);

/* A dimension and its name, for fsdp_check_dims(). */
typedef struct fsdp_dim {
    const char *name;
    int64_t value;
} fsdp_dim;
/* Check that all dimensions are positive. Otherwise return FSDP_ERR_INVALID; the message contains
 * the model and the name of the dimension. */
FSDP_MUST_CHECK fsdp_status fsdp_check_dims(const char *model, const fsdp_dim *dims, size_t n);
