/* See machine.h. */
#include "src/text/jinja/machine.h"

#include <string.h>

#include "src/base/alloc.h"

fsdp_status fsdp_jinja_alloc(jinja_machine *machine, size_t bytes, void *out)
{
    if (bytes > JINJA_MAX_MEMORY || machine->arena.taken > JINJA_MAX_MEMORY - bytes)
        return fsdp_error(FSDP_ERR_INVALID, "the template needs more than %d MiB of memory",
                          JINJA_MAX_MEMORY >> 20);
    void *memory = fsdp_arena_alloc(&machine->arena, bytes);
    if (!memory)
        return FSDP_ERR_NOMEM;
    memcpy(out, &memory, sizeof memory);
    return FSDP_OK;
}

fsdp_status fsdp_jinja_charge(jinja_machine *machine, uint64_t steps)
{
    if (machine->steps_left < steps) {
        machine->steps_left = 0;
        return fsdp_error(FSDP_ERR_INVALID, "the template takes more than %llu steps",
                          JINJA_MAX_STEPS);
    }
    machine->steps_left -= steps;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_descend(jinja_machine *machine)
{
    if (machine->depth >= JINJA_MAX_DEPTH)
        return fsdp_error(FSDP_ERR_INVALID, "calls or values are nested more than %d deep",
                          JINJA_MAX_DEPTH);
    machine->depth++;
    return FSDP_OK;
}
