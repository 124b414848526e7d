/* See loop.h. */
#include "src/text/jinja/loop.h"

#include "src/base/assert.h"
#include "src/text/jinja/iterate.h"
#include "src/text/jinja/machine.h"
#include "src/text/jinja/methods.h"

fsdp_status fsdp_jinja_loop_begin(jinja_machine *machine, jinja_value value, jinja_loop **out)
{
    jinja_loop *loop;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *loop, &loop));
    loop->index0 = -1;
    loop->length = -1;
    FSDP_TRY(fsdp_jinja_iterate(machine, value, &loop->items));
    size_t n;
    if (fsdp_jinja_has_length(value)) {
        FSDP_TRY(fsdp_jinja_length(value, &n));
        loop->length = (int64_t)n;
    }
    *out = loop;
    return FSDP_OK;
}

static fsdp_status peek(jinja_machine *machine, jinja_loop *loop)
{
    if (loop->has_after && loop->after.kind != JINJA_MISSING)
        return FSDP_OK;
    FSDP_TRY(fsdp_jinja_next(machine, loop->items, &loop->after));
    loop->has_after = true;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_loop_next(jinja_machine *machine, jinja_loop *loop, jinja_value *item)
{
    FSDP_TRY(peek(machine, loop));
    *item = loop->after;
    loop->has_after = false;
    if (item->kind == JINJA_MISSING)
        return FSDP_OK;
    loop->index0++;
    loop->previous = loop->current;
    loop->current = *item;
    return FSDP_OK;
}

/* Set loop->length. If the loop iterates over a generator, all of its remaining items must be
 * collected first; the loop then continues with the list of these items. */
static fsdp_status find_length(jinja_machine *machine, jinja_loop *loop)
{
    if (loop->length >= 0)
        return FSDP_OK;
    jinja_value rest;
    FSDP_TRY(fsdp_jinja_to_list(machine, jinja_of_iterator(loop->items), &rest));
    loop->length = (int64_t)rest.as.list->n + loop->index0 + 1 +
                   (loop->has_after && loop->after.kind != JINJA_MISSING);
    return fsdp_jinja_iterate(machine, rest, &loop->items);
}

static fsdp_status cycle(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    (void)machine;
    if (!args->n || args->n_keywords)
        return fsdp_error(FSDP_ERR_INVALID, "loop.cycle needs items to cycle through");
    *out = args->values[(size_t)self.as.loop->index0 % args->n];
    return FSDP_OK;
}

static fsdp_status changed(jinja_machine *machine, jinja_value self, const jinja_args *args,
                           jinja_value *out)
{
    jinja_loop *loop = self.as.loop;
    jinja_value given;
    bool same = false;
    if (args->n_keywords)
        return fsdp_error(FSDP_ERR_INVALID, "loop.changed takes no keywords");
    FSDP_TRY(fsdp_jinja_list(machine, 0, &given));
    for (size_t i = 0; i < args->n; i++)
        FSDP_TRY(fsdp_jinja_list_add(machine, given.as.list, args->values[i]));
    if (loop->changed.kind != JINJA_MISSING)
        FSDP_TRY(fsdp_jinja_equal(machine, loop->changed, given, &same));
    loop->changed = given;
    *out = jinja_bool(!same);
    return FSDP_OK;
}

static fsdp_status bind_method(jinja_machine *machine, jinja_loop *loop,
                               const jinja_method_entry *entry, jinja_value *out)
{
    jinja_method *method;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *method, &method));
    method->self = (jinja_value){.kind = JINJA_LOOP, .as.loop = loop};
    method->entry = entry;
    *out = (jinja_value){.kind = JINJA_METHOD, .as.method = method};
    return FSDP_OK;
}

static fsdp_status neighbor(jinja_machine *machine, jinja_loop *loop, bool next, jinja_value *out)
{
    if (next) {
        FSDP_TRY(peek(machine, loop));
        *out = loop->after;
    } else {
        *out = loop->index0 > 0 ? loop->previous : (jinja_value){.kind = JINJA_MISSING};
    }
    if (out->kind != JINJA_MISSING)
        return FSDP_OK;
    return fsdp_jinja_undefined_hint(
        machine, next ? "there is no next item" : "there is no previous item", out);
}

typedef enum loop_name {
    INDEX,
    INDEX0,
    REVINDEX,
    REVINDEX0,
    FIRST,
    LAST,
    LENGTH,
    DEPTH,
    DEPTH0,
    PREVITEM,
    NEXTITEM,
    CYCLE,
    CHANGED,
    NONE
} loop_name;

static loop_name name_of(const jinja_string *name)
{
    static const char *const names[] = {"index",    "index0", "revindex", "revindex0", "first",
                                        "last",     "length", "depth",    "depth0",    "previtem",
                                        "nextitem", "cycle",  "changed"};
    for (int i = 0; i < (int)FSDP_LENGTH(names); i++)
        if (fsdp_jinja_string_is(name, names[i]))
            return (loop_name)i;
    return NONE;
}

fsdp_status fsdp_jinja_loop_attribute(jinja_machine *machine, jinja_loop *loop,
                                      const jinja_string *name, jinja_value *out)
{
    static const jinja_method_entry cycle_entry = {"cycle", cycle},
                                    changed_entry = {"changed", changed};
    const loop_name which = name_of(name);
    if (which == REVINDEX || which == REVINDEX0 || which == LENGTH)
        FSDP_TRY(find_length(machine, loop));
    switch (which) {
    case INDEX:
        *out = jinja_int(loop->index0 + 1);
        return FSDP_OK;
    case INDEX0:
        *out = jinja_int(loop->index0);
        return FSDP_OK;
    case REVINDEX:
        *out = jinja_int(loop->length - loop->index0);
        return FSDP_OK;
    case REVINDEX0:
        *out = jinja_int(loop->length - loop->index0 - 1);
        return FSDP_OK;
    case FIRST:
        *out = jinja_bool(loop->index0 == 0);
        return FSDP_OK;
    case LAST:
        FSDP_TRY(peek(machine, loop));
        *out = jinja_bool(loop->after.kind == JINJA_MISSING);
        return FSDP_OK;
    case LENGTH:
        *out = jinja_int(loop->length);
        return FSDP_OK;
    case DEPTH:
    case DEPTH0:
        *out = jinja_int(which == DEPTH);
        return FSDP_OK;
    case PREVITEM:
    case NEXTITEM:
        return neighbor(machine, loop, which == NEXTITEM, out);
    case CYCLE:
    case CHANGED:
        return bind_method(machine, loop, which == CYCLE ? &cycle_entry : &changed_entry, out);
    case NONE:
        break;
    }
    *out = (jinja_value){.kind = JINJA_MISSING};
    return FSDP_OK;
}
