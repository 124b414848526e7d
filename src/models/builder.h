/* Building a module tree: a chain of calls that do nothing once one has failed. A parent may be
 * NULL after a failure; results are NULL then. */
#pragma once
#include "src/nn/module.h"

typedef struct fsdp_builder {
    fsdp_status status; /* the first failure */
} fsdp_builder;

/* A child of `parent`; of a class without forward or parameters, it only names things. */
fsdp_module *fsdp_build_module(fsdp_builder *b, fsdp_module *parent, const char *name,
                               const char *class_name);
/* The same, named by its index in a ModuleList. */
fsdp_module *fsdp_build_item(fsdp_builder *b, fsdp_module *list, int64_t index,
                             const char *class_name);

/* The parameters of a layer; bias is NULL if it has none. */
typedef struct fsdp_layer {
    fsdp_parameter *weight, *bias;
} fsdp_layer;

/* torch.nn.Linear: weight [out, in] drawn by `init`, bias zeros. */
fsdp_layer fsdp_build_linear(fsdp_builder *b, fsdp_module *parent, const char *name, int64_t in,
                             int64_t out, bool bias, double std);
/* torch.nn.Embedding, weight [rows, width]. */
fsdp_parameter *fsdp_build_embedding(fsdp_builder *b, fsdp_module *parent, const char *name,
                                     int64_t rows, int64_t width, fsdp_init init);
/* A norm of one weight, `value` everywhere at first. 0: a class that prints no eps. */
fsdp_parameter *fsdp_build_rms_norm(fsdp_builder *b, fsdp_module *parent, const char *name,
                                    const char *class_name, int64_t width, double value,
                                    double eps);
/* torch.nn.LayerNorm: weight ones, bias zeros. */
fsdp_layer fsdp_build_layer_norm(fsdp_builder *b, fsdp_module *parent, const char *name,
                                 int64_t width, double eps);
/* torch.nn.Dropout, which only shows its rate: forwards know it themselves. */
void fsdp_build_dropout(fsdp_builder *b, fsdp_module *parent, const char *name, double p);
/* A further parameter of `m`. */
fsdp_parameter *fsdp_build_parameter(fsdp_builder *b, fsdp_module *m, const char *name, int ndim,
                                     const int64_t *shape, fsdp_init init);
/* A further module of `class_name` whose weight is `shared`. */
void fsdp_build_tied(fsdp_builder *b, fsdp_module *parent, const char *name, const char *class_name,
                     fsdp_parameter *shared);
/* A struct of the module's own, zeroed and freed with it, and its forward. */
void *fsdp_build_impl(fsdp_builder *b, fsdp_module *m, fsdp_forward_fn *forward, size_t size);

/* A dimension, for fsdp_check_dims(). */
typedef struct fsdp_dim {
    const char *name;
    int64_t value;
} fsdp_dim;
/* FSDP_ERR_INVALID naming model and dimension if one is not positive. */
FSDP_MUST_CHECK fsdp_status fsdp_check_dims(const char *model, const fsdp_dim *dims, size_t n);
