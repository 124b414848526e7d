/* See observer.h. */
#include "src/fsdp/observer.h"

#include "src/base/assert.h"
#include "src/fsdp/state.h"

typedef struct observing {
    const fsdp_unit_observer *observer;
} observing;

static fsdp_status observe(const char *path, fsdp_module *m, void *arg)
{
    (void)path;
    fsdp_state *state = m->fsdp_state;
    if (state)
        state->param_group->context.observer = ((const observing *)arg)->observer;
    return FSDP_OK;
}

void fsdp_observe_units(fsdp_module *root, const fsdp_unit_observer *observer)
{
    const fsdp_status status = fsdp_module_visit(root, observe, &(observing){observer});
    FSDP_ASSERT(status == FSDP_OK); /* A visit fails only if the path of a module is too long. The
                                       call that sharded the module would have failed, too. */
}
