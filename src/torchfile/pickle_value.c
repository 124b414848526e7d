/* Functions that inspect the values of a pickle. */
#include <stdio.h>
#include <string.h>

#include "src/torchfile/pickle_reader.h"

bool fsdp_pickle_is(const fsdp_pickle_value *value, fsdp_pickle_kind kind)
{
    return value && value->kind == kind;
}

static void describe_name(const fsdp_pickle_name *name, const char *suffix, char *text,
                          size_t bytes)
{
    snprintf(text, bytes, "%s%s%s%s", name->module ? name->module : "", name->module ? "." : "",
             name->name, suffix);
}

const char *fsdp_pickle_describe(const fsdp_pickle_value *value, char *text, size_t bytes)
{
    static const char *const kinds[] = {
        [FSDP_PICKLE_NONE] = "None",
        [FSDP_PICKLE_BOOL] = "a bool",
        [FSDP_PICKLE_INT] = "an int",
        [FSDP_PICKLE_BIG_INT] = "an int beyond 64 bits",
        [FSDP_PICKLE_FLOAT] = "a float",
        [FSDP_PICKLE_STR] = "a str",
        [FSDP_PICKLE_BYTES] = "bytes",
        [FSDP_PICKLE_TUPLE] = "a tuple",
        [FSDP_PICKLE_LIST] = "a list",
        [FSDP_PICKLE_SET] = "a set",
        [FSDP_PICKLE_DICT] = "a dict",
        [FSDP_PICKLE_NAME] = "a name",
        [FSDP_PICKLE_RECORD] = "an object",
        [FSDP_PICKLE_OPAQUE] = "an object",
        [FSDP_PICKLE_PERSISTENT] = "a storage",
    };
    if (fsdp_pickle_is(value, FSDP_PICKLE_NAME))
        describe_name(value->name, "", text, bytes);
    else if (fsdp_pickle_is(value, FSDP_PICKLE_OPAQUE))
        snprintf(text, bytes, "an object of %s.%s", value->name->module, value->name->name);
    else if (fsdp_pickle_is(value, FSDP_PICKLE_RECORD))
        describe_name(value->record.callee, "(...)", text, bytes);
    else
        snprintf(text, bytes, "%s", value ? kinds[value->kind] : "nothing");
    return text;
}

/* Find the first OPAQUE value. Each turn of the loop goes one level down, from a value to one of
 * the values inside it that is OPAQUE or contains an OPAQUE value. The loop never goes up again, so
 * it ends after at most FSDP_PICKLE_MAX_DEPTH turns. */
const fsdp_pickle_value *fsdp_pickle_find_opaque(const fsdp_pickle_value *value)
{
    while (value && value->opaque && value->kind != FSDP_PICKLE_OPAQUE) {
        const fsdp_pickle_value *below = NULL;
        if (value->kind == FSDP_PICKLE_RECORD) {
            const fsdp_pickle_value *state = value->record.state;
            value = state && state->opaque ? state : value->record.args;
            continue;
        }
        for (size_t i = 0; i < value->list.n && !below; i++)
            below = value->list.items[i]->opaque ? value->list.items[i] : NULL;
        value = below;
    }
    return value && value->opaque ? value : NULL;
}

bool fsdp_pickle_is_call(const fsdp_pickle_value *value, const char *name)
{
    if (fsdp_pickle_is(value, FSDP_PICKLE_NAME))
        return strcmp(value->name->name, name) == 0;
    return fsdp_pickle_is(value, FSDP_PICKLE_RECORD) &&
           strcmp(value->record.callee->name, name) == 0;
}

const fsdp_pickle_value *fsdp_pickle_at(const fsdp_pickle_value *value, size_t i)
{
    if (fsdp_pickle_is(value, FSDP_PICKLE_RECORD))
        value = value->record.args;
    if (!fsdp_pickle_is(value, FSDP_PICKLE_TUPLE) && !fsdp_pickle_is(value, FSDP_PICKLE_LIST) &&
        !fsdp_pickle_is(value, FSDP_PICKLE_PERSISTENT))
        return NULL;
    return i < value->list.n ? value->list.items[i] : NULL;
}

const fsdp_pickle_value *fsdp_pickle_find(const fsdp_pickle_value *value, const char *key)
{
    if (fsdp_pickle_is(value, FSDP_PICKLE_RECORD))
        value = value->record.state;
    if (!fsdp_pickle_is(value, FSDP_PICKLE_DICT))
        return NULL;
    for (size_t i = value->list.n; i >= 2; i -= 2) {
        const char *text = fsdp_pickle_text(value->list.items[i - 2]);
        if (text && strcmp(text, key) == 0)
            return value->list.items[i - 1];
    }
    return NULL;
}

const char *fsdp_pickle_text(const fsdp_pickle_value *value)
{
    if (!fsdp_pickle_is(value, FSDP_PICKLE_STR) || strlen(value->text.data) != value->text.bytes)
        return NULL;
    return value->text.data;
}
