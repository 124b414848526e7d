/* Computes the norms of DoRA outside of a forward: to initialize the magnitudes, and to keep the
 * norms of a model that is not trained any more (Note [Magnitudes] in src/autograd/magnitude.h).
 *
 * A norm needs whole rows of the weight, so the unit of a layer is gathered. The layers of a unit
 * follow each other in the tree, so each unit is gathered once. Parameters cannot be written while
 * their unit is gathered. So the results of a unit are kept until the unit is resharded. */
#include <fsdp/lora.h>

#include <fsdp/fsdp.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/nn/adapter.h"
#include "src/tensor/device.h"
#include "src/tensor/tensor.h"

/* What is done with the norms [out] of the layer whose weight is `weight`. */
typedef fsdp_status use_norms_fn(fsdp_parameter *weight, fsdp_tensor *norms);

typedef struct layer_norms {
    fsdp_parameter *weight;
    fsdp_tensor *norms; /* owned */
} layer_norms;

typedef struct norms_walk {
    use_norms_fn *use;
    fsdp_module *unit;   /* the unit that is gathered; NULL: none */
    layer_norms *layers; /* [n] the layers of `unit` that have been visited */
    size_t n, cap;
} norms_walk;

/* Return the innermost unit that contains the module, or NULL if there is none. */
static fsdp_module *unit_of(fsdp_module *m)
{
    while (m && !fsdp_module_is_unit(m))
        m = fsdp_module_parent(m);
    return m;
}

/* Reshard the unit, and use the norms of its layers. */
static fsdp_status leave_unit(norms_walk *walk)
{
    fsdp_status status = walk->unit ? fsdp_unit_reshard(walk->unit) : FSDP_OK;
    for (size_t i = 0; i < walk->n; i++) {
        if (status == FSDP_OK)
            status = walk->use(walk->layers[i].weight, walk->layers[i].norms);
        fsdp_tensor_release(walk->layers[i].norms);
    }
    walk->unit = NULL;
    walk->n = 0;
    return status;
}

/* Compute the norms of one layer, whose unit is gathered. The caller owns *norms. */
static fsdp_status compute_norms(const fsdp_parameter *weight, fsdp_tensor **norms)
{
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(weight->data->storage->device, NULL, NULL, &s));
    fsdp_tensor *result = fsdp_adapter_norms(s, weight);
    const fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        *norms = fsdp_tensor_retain(result);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status visit_layer(const char *path, fsdp_module *m, void *arg)
{
    norms_walk *walk = arg;
    fsdp_parameter *weight = fsdp_module_parameter(m, "weight");
    if (!weight || !fsdp_adapter_has_magnitudes(weight))
        return FSDP_OK;
    if (!weight->data)
        return fsdp_error(FSDP_ERR_STATE,
                          "'%s.weight' has no memory yet: shard the model and load its weights "
                          "before the norms of DoRA are computed",
                          path);
    if (!weight->data->storage->device->kernels)
        return FSDP_OK;
    fsdp_module *unit = unit_of(m);
    if (unit != walk->unit) {
        FSDP_TRY(leave_unit(walk));
        if (unit)
            FSDP_TRY(fsdp_unit_unshard(unit));
        walk->unit = unit;
    }
    if (!FSDP_GROW(walk->layers, walk->cap, walk->n + 1))
        return FSDP_ERR_NOMEM;
    walk->layers[walk->n] = (layer_norms){.weight = weight};
    const fsdp_status status = compute_norms(weight, &walk->layers[walk->n].norms);
    fsdp_error_context(status, "%s", path);
    FSDP_TRY(status);
    walk->n++;
    return FSDP_OK;
}

/* Reshard the unit after a failure, without using the norms. Return `status`, the failure. */
static fsdp_status abandon_unit(norms_walk *walk, fsdp_status status)
{
    fsdp_saved_error error;
    fsdp_error_save(status, &error);
    for (size_t i = 0; i < walk->n; i++)
        fsdp_tensor_release(walk->layers[i].norms);
    walk->n = 0;
    const fsdp_status resharded = leave_unit(walk);
    (void)resharded; /* the first failure is reported */
    return fsdp_error_restore(&error);
}

/* Call `use` with the norms of each layer whose adapter has magnitudes. */
static fsdp_status for_each_layer(fsdp_module *model, use_norms_fn *use)
{
    norms_walk walk = {.use = use};
    fsdp_status status = fsdp_module_visit(model, visit_layer, &walk);
    if (status == FSDP_OK)
        status = leave_unit(&walk);
    else
        status = abandon_unit(&walk, status);
    fsdp_free(walk.layers);
    return status;
}

/* --- what is done with the norms --- */

/* Set this rank's rows of the magnitudes to the norms. */
static fsdp_status set_magnitudes(fsdp_parameter *weight, fsdp_tensor *norms)
{
    fsdp_parameter *magnitude = weight->adapter->magnitude;
    const fsdp_slice slice = fsdp_parameter_slice(magnitude);
    float *values = fsdp_calloc((size_t)fsdp_tensor_numel(norms), sizeof *values);
    if (!values)
        return FSDP_ERR_NOMEM;
    fsdp_writing writing = {0};
    fsdp_status status = fsdp_tensor_to_floats(norms, values);
    if (status == FSDP_OK)
        status = fsdp_writing_next(&writing, magnitude->local);
    if (status == FSDP_OK && slice.length)
        status = fsdp_tensor_from_host(magnitude->local, 0, values + slice.first, FSDP_DTYPE_F32,
                                       slice.length);
    fsdp_writing_end(&writing);
    fsdp_free(values);
    return status;
}

static fsdp_status keep_norms(fsdp_parameter *weight, fsdp_tensor *norms)
{
    fsdp_adapter_set_norms(weight, norms);
    return FSDP_OK;
}

fsdp_status fsdp_lora_init_magnitudes(fsdp_module *model)
{
    return for_each_layer(model, set_magnitudes);
}

static fsdp_status forget_norms(const char *path, fsdp_module *m, void *arg)
{
    const fsdp_parameter *weight = fsdp_module_parameter(m, "weight");
    (void)path;
    (void)arg;
    if (weight && fsdp_adapter_has_magnitudes(weight))
        fsdp_adapter_set_norms(weight, NULL);
    return FSDP_OK;
}

fsdp_status fsdp_lora_keep_norms(fsdp_module *model, bool keep)
{
    return keep ? for_each_layer(model, keep_norms) : fsdp_module_visit(model, forget_norms, NULL);
}
