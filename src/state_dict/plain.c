/* Converts plain Python values to and from pickles. */
#include <string.h>

#include "src/state_dict/state_dict.h"

enum {
    MAX_DEPTH = 3,
    /* Largest size of the arena into which values are copied. A limit is necessary: a small pickle
     * can refer to one value from very many places, and the value is copied once for each place. */
    MAX_PLAIN_BYTES = 64 << 20
};

static fsdp_status allocate(fsdp_arena *arena, size_t bytes, void **memory)
{
    if (bytes > MAX_PLAIN_BYTES || arena->taken + bytes > MAX_PLAIN_BYTES)
        return fsdp_error(FSDP_ERR_FORMAT, "its plain values take more than %d MiB",
                          MAX_PLAIN_BYTES >> 20);
    *memory = fsdp_arena_alloc(arena, bytes);
    return *memory ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status read_plain(const fsdp_pickle_value *from, fsdp_arena *arena, int depth,
                              fsdp_plain *to, bool *known);

static fsdp_status read_text(const char *text, fsdp_arena *arena, fsdp_plain *to)
{
    const size_t bytes = strlen(text) + 1;
    void *copy = NULL;
    FSDP_TRY(allocate(arena, bytes, &copy));
    memcpy(copy, text, bytes);
    *to = (fsdp_plain){.kind = FSDP_PLAIN_STR, .as.text = copy};
    return FSDP_OK;
}

static fsdp_status read_list(const fsdp_pickle_value *from, fsdp_arena *arena, int depth,
                             fsdp_plain *to, bool *known)
{
    void *memory = NULL;
    FSDP_TRY(allocate(arena, from->list.n * sizeof(fsdp_plain), &memory));
    fsdp_plain *items = memory;
    for (size_t i = 0; i < from->list.n && *known; i++)
        FSDP_TRY(read_plain(from->list.items[i], arena, depth - 1, &items[i], known));
    to->kind = from->kind == FSDP_PICKLE_TUPLE ? FSDP_PLAIN_TUPLE : FSDP_PLAIN_LIST;
    to->as.list.items = items;
    to->as.list.n = from->list.n;
    return FSDP_OK;
}

static fsdp_status read_plain(const fsdp_pickle_value *from, fsdp_arena *arena, int depth,
                              fsdp_plain *to, bool *known)
{
    const bool is_list =
        fsdp_pickle_is(from, FSDP_PICKLE_TUPLE) || fsdp_pickle_is(from, FSDP_PICKLE_LIST) ||
        fsdp_pickle_is(from, FSDP_PICKLE_SET); /* there is no plain set, so a set becomes a list */
    *to = (fsdp_plain){.kind = FSDP_PLAIN_NONE};
    if (fsdp_pickle_is(from, FSDP_PICKLE_BOOL))
        *to = (fsdp_plain){.kind = FSDP_PLAIN_BOOL, .as.boolean = from->boolean};
    else if (fsdp_pickle_is(from, FSDP_PICKLE_INT))
        *to = (fsdp_plain){.kind = FSDP_PLAIN_INT, .as.integer = from->integer};
    else if (fsdp_pickle_is(from, FSDP_PICKLE_FLOAT))
        *to = (fsdp_plain){.kind = FSDP_PLAIN_FLOAT, .as.number = from->number};
    else if (fsdp_pickle_text(from))
        return read_text(fsdp_pickle_text(from), arena, to);
    else if (depth > 0 && is_list)
        return read_list(from, arena, depth, to, known);
    else if (!fsdp_pickle_is(from, FSDP_PICKLE_NONE))
        *known = false;
    return FSDP_OK;
}

fsdp_status fsdp_state_read_plain(const fsdp_pickle_value *from, fsdp_arena *arena, fsdp_plain *to,
                                  bool *known)
{
    *known = true;
    return read_plain(from, arena, MAX_DEPTH, to, known);
}

void fsdp_state_write_plain(fsdp_pickle_writer *w, const fsdp_plain *value)
{
    switch (value->kind) {
    case FSDP_PLAIN_NONE:
        fsdp_pickle_put_none(w);
        return;
    case FSDP_PLAIN_BOOL:
        fsdp_pickle_put_bool(w, value->as.boolean);
        return;
    case FSDP_PLAIN_INT:
        fsdp_pickle_put_int(w, value->as.integer);
        return;
    case FSDP_PLAIN_FLOAT:
        fsdp_pickle_put_float(w, value->as.number);
        return;
    case FSDP_PLAIN_STR:
        fsdp_pickle_put_str(w, value->as.text);
        return;
    case FSDP_PLAIN_TUPLE:
    case FSDP_PLAIN_LIST:
        break;
    }
    fsdp_pickle_begin(w, value->kind == FSDP_PLAIN_TUPLE ? FSDP_PICKLE_TUPLE : FSDP_PICKLE_LIST);
    for (size_t i = 0; i < value->as.list.n; i++)
        fsdp_state_write_plain(w, &value->as.list.items[i]);
    fsdp_pickle_end(w);
}
