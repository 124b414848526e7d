/* Implements hooks: functions of the program that save_state() and load_state() call before they
 * save or load anything. */
#include <inttypes.h>
#include <string.h>

#include "src/accelerator/accelerator.h"
#include "src/base/alloc.h"
#include "src/comm/agree.h"

static fsdp_status add(fsdp_accelerator *a, const char *call, fsdp_registered_hook hook,
                       int64_t *handle)
{
    if (!hook.call)
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: %s: the function is missing", call);
    if (!FSDP_GROW(a->hooks, a->cap_hooks, a->n_hooks + 1))
        return FSDP_ERR_NOMEM;
    hook.handle = ++a->next_hook;
    a->hooks[a->n_hooks++] = hook;
    if (handle)
        *handle = hook.handle;
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_register_save_state_pre_hook(fsdp_accelerator *a,
                                                          fsdp_accelerator_state_hook *hook,
                                                          void *context, int64_t *handle)
{
    return add(a, "register_save_state_pre_hook",
               (fsdp_registered_hook){.call = hook, .context = context}, handle);
}

fsdp_status fsdp_accelerator_register_load_state_pre_hook(fsdp_accelerator *a,
                                                          fsdp_accelerator_state_hook *hook,
                                                          void *context, int64_t *handle)
{
    return add(a, "register_load_state_pre_hook",
               (fsdp_registered_hook){.call = hook, .context = context, .loads = true}, handle);
}

fsdp_status fsdp_accelerator_remove_hook(fsdp_accelerator *a, int64_t handle)
{
    for (size_t i = 0; i < a->n_hooks; i++) {
        if (a->hooks[i].handle != handle)
            continue;
        memmove(&a->hooks[i], &a->hooks[i + 1], (--a->n_hooks - i) * sizeof *a->hooks);
        return FSDP_OK;
    }
    return fsdp_error(FSDP_ERR_INVALID,
                      "accelerator: remove_hook: there is no hook %" PRId64 ", or it was removed",
                      handle);
}

/* Call the hooks in the order in which they were registered. A hook may register or remove hooks,
 * so each hook is looked up by its handle. After each hook, the ranks agree on its result, because
 * the next hook may be collective. */
fsdp_status fsdp_accelerator_call_hooks(fsdp_accelerator *a, bool loads, const char *dir)
{
    const int64_t last = a->next_hook;
    for (int64_t handle = 1; handle <= last; handle++) {
        size_t i = 0;
        while (i < a->n_hooks && a->hooks[i].handle != handle)
            i++;
        if (i == a->n_hooks || a->hooks[i].loads != loads)
            continue;
        const fsdp_registered_hook hook = a->hooks[i];
        FSDP_TRY(fsdp_agree(a->group, hook.call(hook.context, a, dir)));
    }
    return FSDP_OK;
}
