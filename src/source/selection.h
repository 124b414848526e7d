/* Selects the items of a checkpoint that a tool uses: all items, or only the model's tensors.
 *
 * The names of the selected items lack the parts that wrappers of modules added (Note [Wrapped
 * names] in wrapped_names.h). */
#pragma once
#include "src/base/arena.h"
#include "src/hf/wrapped_names.h"
#include "src/source/source.h"

typedef struct fsdp_selected {
    const char *name;             /* keys joined with dots */
    const fsdp_nesting_key *keys; /* [n_keys] */
    int n_keys;
    const fsdp_source_item *item;
} fsdp_selected;

typedef struct fsdp_selection {
    fsdp_arena arena;
    fsdp_selected *items; /* [n] in the order of the source, or sorted by fsdp_selection_sort() */
    size_t n;
    char *prefix; /* the keys that lead to the model's state dict, joined with dots, such as
                     "model"; "" if this dict is at the top; NULL if all items are selected */
} fsdp_selection;

FSDP_MUST_CHECK fsdp_status fsdp_select_all(const fsdp_source *source, fsdp_selection *selection);
/* Select the tensors of the model's state dict. This is the dict that is stored under the key
 * "model", "state_dict", "model_state_dict" or "module". If there are several such dicts, the one
 * that is nearest to the top is the model's. If there is no such dict, all tensors at the top are
 * selected. Returns FSDP_ERR_NOT_FOUND if there are no tensors at the top either. Returns
 * FSDP_ERR_INVALID if two such dicts are equally near the top; the message names both. */
FSDP_MUST_CHECK fsdp_status fsdp_select_model(const fsdp_source *source, fsdp_selection *selection);
/* Return true if `name` has the form "state.<parameter>.<key>", and <parameter> is the name of a
 * tensor in the selection. With flatten_optimizer_state_dict, torch gives such names to the tensors
 * of an optimizer. If the model and the optimizer are both at the top of a checkpoint, a selection
 * of the model also contains the optimizer's tensors. The selection must be sorted. */
bool fsdp_selection_is_flat_optimizer(const fsdp_selection *selection, const char *name);
/* Remove from a sorted selection the tensors for which fsdp_selection_is_flat_optimizer() is
 * true. */
FSDP_MUST_CHECK fsdp_status fsdp_selection_drop_flat_optimizer(fsdp_selection *selection);
/* Remove from all names of a selection what change->every_module and change->prefix describe.
 * change->base_layer has no effect here. The selection must contain only a model. */
FSDP_MUST_CHECK fsdp_status fsdp_selection_change(fsdp_selection *selection,
                                                  const fsdp_name_change *change);
/* Sort the items by name, in byte order. */
void fsdp_selection_sort(fsdp_selection *selection);
void fsdp_selection_fini(fsdp_selection *selection); /* accepts a zeroed selection */
