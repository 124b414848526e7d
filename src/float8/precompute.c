/* In a model, computes the scales of all weights that are gathered in float8; see Note [Float8
 * all-gather] in src/fsdp/storage_float8.c. */
#include <fsdp/float8.h>

#include "src/base/alloc.h"
#include "src/fsdp/state.h"

typedef struct float8_memories {
    fsdp_param_memory **items;
    size_t n, cap;
} float8_memories;

/* Add the memory of the float8 weights of the module's unit. If a unit has several modules, its
 * memory is added only when the first of these modules is visited. */
static fsdp_status collect(const char *path, fsdp_module *m, void *arg)
{
    float8_memories *list = arg;
    const fsdp_state *state = m->fsdp_state;
    (void)path;
    if (!state || state->module != m)
        return FSDP_OK;
    fsdp_param_memory *memory = state->param_group->memories.items[FSDP_MEMORY_FLOAT8];
    if (!memory)
        return FSDP_OK;
    if (!FSDP_GROW(list->items, list->cap, list->n + 1))
        return FSDP_ERR_NOMEM;
    list->items[list->n++] = memory;
    return FSDP_OK;
}

fsdp_status fsdp_precompute_float8_dynamic_scale_for_fsdp(fsdp_module *model)
{
    float8_memories list = {0};
    fsdp_status status = fsdp_module_visit(model, collect, &list);
    if (status == FSDP_OK)
        status = fsdp_float8_memories_update(list.items, list.n);
    fsdp_free(list.items);
    return status;
}
