/* See weights_fit.h. */
#include "src/pretrained/weights_fit.h"
#include "src/pretrained/weights_names.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/models.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/hf/hf_dir.h"
#include "src/models/model_type.h"
#include "src/nn/module.h"
#include "src/pretrained/load_names.h"
#include "src/source/selection.h"
#include "src/torchfile/entry.h"

enum {
    SHAPE_BYTES = 256
};

typedef struct fitting {
    const fsdp_source *weights;
    const char *model; /* folder or hub name, as the user gave it */
    const fsdp_model_type *type;
    fsdp_selection have; /* the weights, sorted by name */
    fsdp_parameter_list names;
    fsdp_name_change *change;
} fitting;

static int by_name(const void *key, const void *item)
{
    return strcmp(key, ((const fsdp_selected *)item)->name);
}

static const void *in_selection(const void *file, const char *name)
{
    const fsdp_selection *s = file;
    return bsearch(name, s->items, s->n, sizeof *s->items, by_name);
}

static fsdp_status check_shape(const fitting *f, const fsdp_parameter *p,
                               const fsdp_source_item *item)
{
    char has[SHAPE_BYTES], wanted[SHAPE_BYTES];
    if (item->ndim == p->ndim &&
        memcmp(item->shape, p->shape, (size_t)p->ndim * sizeof *p->shape) == 0)
        return FSDP_OK;
    fsdp_checkpoint_shape_text(item->shape, item->ndim, has, sizeof has);
    fsdp_checkpoint_shape_text(p->shape, p->ndim, wanted, sizeof wanted);
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: tensor '%s' has shape %s; a %s of the config.json of %s has %s there",
                      fsdp_source_path(f->weights), item->fqn, has, f->type->root_class, f->model,
                      wanted);
}

/* Find the weight of names.items[i].parameter. This parameter may have several names, and all of
 * them are looked up. *found is NULL if no name is found. */
static fsdp_status find_weight(const fitting *f, size_t i, const fsdp_selected **found)
{
    *found = NULL;
    for (size_t k = 0; k < f->names.n && !*found; k++) {
        const void *entry;
        if (f->names.items[k].parameter != f->names.items[i].parameter)
            continue;
        FSDP_TRY(fsdp_load_lookup(in_selection, &f->have, f->type->base_prefix,
                                  f->names.items[k].name, &entry));
        *found = entry;
    }
    return FSDP_OK;
}

static fsdp_status check_there(const fitting *f)
{
    for (size_t i = 0; i < f->names.n; i++) {
        const fsdp_selected *found;
        const char *name = f->names.items[i].name;
        FSDP_TRY(find_weight(f, i, &found));
        if (!found && !fsdp_weights_name_is_optional(f->type, name))
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: there is no tensor '%s', which a %s of the config.json of %s "
                              "has: weights of another model",
                              fsdp_source_path(f->weights), name, f->type->root_class, f->model);
    }
    return FSDP_OK;
}

static fsdp_status check_shapes(const fitting *f)
{
    for (size_t i = 0; i < f->names.n; i++) {
        const fsdp_selected *found;
        FSDP_TRY(find_weight(f, i, &found));
        if (found)
            FSDP_TRY(check_shape(f, f->names.items[i].parameter, found->item));
    }
    return FSDP_OK;
}

/* ---- weights that the model uses ------------------------------------------------------------- */

/* List the weights that the model uses. Also list the tensors that old versions of transformers
 * saved although no model reads them (fsdp_load_is_old_buffer()). All names of a parameter are
 * looked up, because a tied weight may be stored under two names. */
static fsdp_status list_used(const fitting *f, fsdp_weights_use *use)
{
    use->items = fsdp_calloc(f->names.n + f->have.n, sizeof(const fsdp_source_item *));
    if (!use->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < f->names.n; i++) {
        const void *found;
        FSDP_TRY(fsdp_load_lookup(in_selection, &f->have, f->type->base_prefix,
                                  f->names.items[i].name, &found));
        if (found)
            use->items[use->n++] = ((const fsdp_selected *)found)->item;
    }
    for (size_t i = 0; i < f->have.n; i++)
        if (fsdp_load_is_old_buffer(f->have.items[i].name))
            use->items[use->n++] = f->have.items[i].item;
    qsort(use->items, use->n, sizeof(const fsdp_source_item *), fsdp_compare_addresses);
    return FSDP_OK;
}

void fsdp_weights_use_free(fsdp_weights_use *use)
{
    fsdp_free(use->items);
    *use = (fsdp_weights_use){0};
}

static int by_parameter_name(const void *a, const void *b)
{
    return strcmp(((const fsdp_named_parameter *)a)->name, ((const fsdp_named_parameter *)b)->name);
}

static bool has_name(const fsdp_named_parameter *sorted, size_t n, const char *name)
{
    const fsdp_named_parameter key = {.name = name};
    return bsearch(&key, sorted, n, sizeof key, by_parameter_name);
}

static fsdp_status check_expected(const fsdp_source *weights, const fsdp_selection *have,
                                  const fsdp_parameter_list *names, const char *owner)
{
    const char *first = NULL;
    size_t n = 0, n_known = 0;
    fsdp_named_parameter *sorted = fsdp_calloc(names->n, sizeof *sorted);
    if (!sorted)
        return FSDP_ERR_NOMEM;
    memcpy(sorted, names->items, names->n * sizeof *sorted);
    qsort(sorted, names->n, sizeof *sorted, by_parameter_name);
    for (size_t i = 0; i < have->n; i++) {
        const char *name = have->items[i].name;
        if (has_name(sorted, names->n, name))
            n_known++;
        else if (!fsdp_load_is_old_buffer(name) && !fsdp_selection_is_flat_optimizer(have, name))
            first = n++ ? first : have->items[i].item->fqn;
    }
    fsdp_free(sorted);
    /* n: number of tensors of `have` that should be in `names`, but are not. n_known: number of
     * tensors of `have` that are in `names`. If n_known is 0, the tensors have names of a
     * completely different form. Nothing can be compared then, so this is not an error. */
    if (n == 0 || n_known == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: %s has no use for %zu tensor%s of the model there, '%s'%s: "
                      "it was saved by a larger model, or by another one",
                      fsdp_source_path(weights), owner, n, n == 1 ? "" : "s", first,
                      n == 1 ? "" : " the first");
}

fsdp_status fsdp_weights_check_expected(const fsdp_source *weights,
                                        const fsdp_parameter_list *names, const char *owner)
{
    fsdp_selection have;
    fsdp_status status = fsdp_select_model(weights, &have);
    if (status == FSDP_ERR_NOT_FOUND || status == FSDP_ERR_INVALID)
        return FSDP_OK;
    FSDP_TRY(status);
    fsdp_selection_sort(&have);
    status = check_expected(weights, &have, names, owner);
    fsdp_selection_fini(&have);
    return status;
}

/* ---- the model of a config.json -------------------------------------------------------------- */

/* Find the change that makes the names of the weights fit the model, and apply it to f->have. */
static fsdp_status fit_names(fitting *f, const fsdp_model_config *config)
{
    const char **names = fsdp_calloc(f->have.n, sizeof(const char *));
    if (!names)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < f->have.n; i++)
        names[i] = f->have.items[i].name;
    fsdp_status status =
        fsdp_weights_names_fit(config, fsdp_source_path(f->weights), names, f->have.n, f->change);
    fsdp_free(names);
    return status == FSDP_OK ? fsdp_selection_change(&f->have, f->change) : status;
}

static fsdp_status select_weights(fitting *f, const fsdp_model_config *config)
{
    FSDP_TRY(fsdp_select_model(f->weights, &f->have));
    FSDP_TRY(fit_names(f, config));
    fsdp_selection_sort(&f->have);
    return FSDP_OK;
}

static fsdp_status check_model(fitting *f, const fsdp_model_config *config, fsdp_weights_use *use)
{
    fsdp_module *module;
    f->type = config->type;
    fsdp_status status = select_weights(f, config);
    if (status != FSDP_OK) {
        fsdp_selection_fini(&f->have);
        return status;
    }
    status = fsdp_model_create(config, &module);
    if (status == FSDP_OK) {
        status = fsdp_module_parameters(module, true, &f->names);
        if (status == FSDP_OK)
            status = check_there(f);
        if (status == FSDP_OK)
            status = check_shapes(f);
        if (status == FSDP_OK && use)
            status = list_used(f, use);
        fsdp_parameter_list_free(&f->names);
        fsdp_module_destroy(module);
    }
    fsdp_selection_fini(&f->have);
    return status;
}

/* Read the config.json of `model`. Set *known to false, and return FSDP_OK, in three cases: the
 * file does not exist, it describes a model that this program does not support, or it lacks a key
 * that this program requires. transformers uses a default for a missing key. */
static fsdp_status read_config(const char *model, fsdp_model_config *config, bool *known)
{
    char *dir, *path = NULL;
    FSDP_TRY(fsdp_hf_dir_resolve(model, &dir));
    path = fsdp_path_join(dir, "config.json");
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    *known = path && fsdp_path_exists(path);
    if (*known)
        status = fsdp_model_config_read(path, config);
    if (status == FSDP_ERR_UNSUPPORTED || (*known && status == FSDP_ERR_NOT_FOUND)) {
        *known = false;
        status = FSDP_OK;
    }
    fsdp_free(path);
    fsdp_free(dir);
    return status;
}

fsdp_status fsdp_weights_fit(const fsdp_source *weights, const char *model,
                             fsdp_name_change *change, fsdp_weights_use *use)
{
    fsdp_model_config config;
    fitting f = {.weights = weights, .model = model, .change = change};
    bool known;
    *change = (fsdp_name_change){0};
    if (use)
        *use = (fsdp_weights_use){0};
    FSDP_TRY(read_config(model, &config, &known));
    fsdp_status status = known ? check_model(&f, &config, use) : FSDP_OK;
    if (status != FSDP_OK && use)
        fsdp_weights_use_free(use);
    return status;
}
