/* Writes the opcodes of a pickle. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/torchfile/pickle_writer.h"

enum {
    TUPLE1 = '\x85',
    MAX_COPIED_BYTES = 1 << 30
};

static void put_op(fsdp_pickle_writer *w, char op)
{
    fsdp_str_append(&w->text, &op, 1);
}

/* Put an opcode and its little-endian argument. */
static void put_number(fsdp_pickle_writer *w, char op, int width, uint64_t value)
{
    char bytes[9] = {op};
    for (int i = 0; i < width; i++)
        bytes[1 + i] = (char)(unsigned char)(value >> 8 * i);
    fsdp_str_append(&w->text, bytes, (size_t)width + 1);
}

void fsdp_pickle_put_none(fsdp_pickle_writer *w)
{
    put_op(w, 'N');
}

void fsdp_pickle_put_bool(fsdp_pickle_writer *w, bool value)
{
    put_op(w, value ? '\x88' : '\x89');
}

void fsdp_pickle_put_int(fsdp_pickle_writer *w, int64_t value)
{
    if (value >= 0 && value <= UINT8_MAX) {
        put_number(w, 'K', 1, (uint64_t)value);
    } else if (value >= 0 && value <= UINT16_MAX) {
        put_number(w, 'M', 2, (uint64_t)value);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        put_number(w, 'J', 4, (uint64_t)value);
    } else {
        put_op(w, '\x8a'); /* LONG1: a byte with the number of bytes (8), then the bytes */
        put_number(w, 8, 8, (uint64_t)value);
    }
}

void fsdp_pickle_put_float(fsdp_pickle_writer *w, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_number(w, 'G', 8, __builtin_bswap64(bits)); /* the only big-endian number in the format */
}

static void put_text(fsdp_pickle_writer *w, const char *utf8, size_t bytes)
{
    FSDP_ASSERT(bytes <= UINT32_MAX);
    put_number(w, 'X', 4, bytes);
    fsdp_str_append(&w->text, utf8, bytes);
}

void fsdp_pickle_put_str(fsdp_pickle_writer *w, const char *utf8)
{
    put_text(w, utf8, strlen(utf8));
}

/* ---- shared texts ---------------------------------------------------------------------------- */

/* Return the FNV-1a hash of a text. */
static size_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (size_t)(hash ^ hash >> 32);
}

/* Return the slot of a text in the table, or the free slot in which to store the text. */
static struct fsdp_pickle_shared *place_of(struct fsdp_pickle_shared *table, size_t cap,
                                           const char *text)
{
    size_t at = hash_text(text) & (cap - 1);
    while (table[at].text && table[at].text != text && strcmp(table[at].text, text) != 0)
        at = (at + 1) & (cap - 1);
    return &table[at];
}

/* Make sure that the table has a free slot for one more text. Return false if memory ran out. */
static bool grow_table(fsdp_pickle_writer *w)
{
    const size_t cap = w->shared_cap ? 2 * w->shared_cap : 64;
    if (2 * (w->n_shared + 1) <= w->shared_cap)
        return true;
    struct fsdp_pickle_shared *table = fsdp_calloc(cap, sizeof *table);
    if (!table)
        return false;
    for (size_t i = 0; i < w->shared_cap; i++)
        if (w->shared[i].text)
            *place_of(table, cap, w->shared[i].text) = w->shared[i];
    fsdp_free(w->shared);
    w->shared = table;
    w->shared_cap = cap;
    return true;
}

/* Put an opcode with the memo number of a text. The opcode is `small` (BINPUT or BINGET) for a
 * number of one byte, and `large` (LONG_BINPUT or LONG_BINGET) for other numbers. */
static void put_memo(fsdp_pickle_writer *w, char small, char large, uint32_t number)
{
    const bool is_small = number <= UINT8_MAX;
    put_number(w, is_small ? small : large, is_small ? 1 : 4, number);
}

void fsdp_pickle_put_shared_str(fsdp_pickle_writer *w, const char *utf8)
{
    if (!grow_table(w)) {
        w->text.failed = true;
        return;
    }
    struct fsdp_pickle_shared *place = place_of(w->shared, w->shared_cap, utf8);
    if (place->text) {
        put_memo(w, 'h', 'j', place->number);
        return;
    }
    place->text = utf8;
    place->number = FSDP_PICKLE_MAX_GLOBALS + (uint32_t)w->n_shared++;
    fsdp_pickle_put_str(w, utf8);
    put_memo(w, 'q', 'r', place->number);
}

/* Put the call _codecs.encode(text, "latin1"), where `text` has one character for each byte of
 * `data`. */
void fsdp_pickle_put_bytes(fsdp_pickle_writer *w, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    size_t n = bytes;
    for (size_t i = 0; i < bytes; i++)
        n += from[i] >> 7;
    FSDP_ASSERT(n <= UINT32_MAX);
    fsdp_pickle_put_global(w, "_codecs", "encode");
    fsdp_pickle_begin(w, FSDP_PICKLE_TUPLE);
    put_number(w, 'X', 4, n);
    for (size_t i = 0; i < bytes; i++) {
        char utf8[2] = {(char)(0xC0 | from[i] >> 6), (char)(0x80 | (from[i] & 0x3F))};
        fsdp_str_append(&w->text, from[i] < 0x80 ? (const char *)from + i : utf8,
                        from[i] < 0x80 ? 1 : 2);
    }
    fsdp_pickle_put_str(w, "latin1");
    fsdp_pickle_end(w);
    fsdp_pickle_call(w);
}

void fsdp_pickle_begin(fsdp_pickle_writer *w, fsdp_pickle_kind kind)
{
    FSDP_ASSERT(w->depth < (int)FSDP_LENGTH(w->open));
    w->open[w->depth++] = kind;
    if (kind == FSDP_PICKLE_SET) /* protocol 2 has no opcode for sets, so write set([...]) */
        fsdp_pickle_put_global(w, "__builtin__", "set");
    if (kind == FSDP_PICKLE_DICT)
        put_op(w, '}');
    else if (kind != FSDP_PICKLE_TUPLE)
        put_op(w, ']');
    put_op(w, '(');
}

void fsdp_pickle_end(fsdp_pickle_writer *w)
{
    FSDP_ASSERT(w->depth > 0);
    fsdp_pickle_kind kind = w->open[--w->depth];
    put_op(w, kind == FSDP_PICKLE_DICT ? 'u' : kind == FSDP_PICKLE_TUPLE ? 't' : 'e');
    if (kind == FSDP_PICKLE_SET) {
        put_op(w, TUPLE1);
        fsdp_pickle_call(w);
    }
}

void fsdp_pickle_put_ints(fsdp_pickle_writer *w, const int64_t *values, int n)
{
    fsdp_pickle_begin(w, FSDP_PICKLE_TUPLE);
    for (int i = 0; i < n; i++)
        fsdp_pickle_put_int(w, values[i]);
    fsdp_pickle_end(w);
}

void fsdp_pickle_put_global(fsdp_pickle_writer *w, const char *module, const char *name)
{
    for (int i = 0; i < w->n_globals; i++)
        if (strcmp(w->globals[i].module, module) == 0 && strcmp(w->globals[i].name, name) == 0) {
            put_number(w, 'h', 1, (uint64_t)i); /* BINGET */
            return;
        }
    fsdp_str_printf(&w->text, "c%s\n%s\n", module, name);
    FSDP_ASSERT(w->n_globals < FSDP_PICKLE_MAX_GLOBALS);
    w->globals[w->n_globals].module = module;
    w->globals[w->n_globals].name = name;
    put_number(w, 'q', 1, (uint64_t)w->n_globals++); /* BINPUT */
}

void fsdp_pickle_call(fsdp_pickle_writer *w)
{
    put_op(w, 'R');
}

void fsdp_pickle_put_object(fsdp_pickle_writer *w, const char *module, const char *name)
{
    fsdp_pickle_put_global(w, module, name);
    put_op(w, ')');
    put_op(w, '\x81'); /* NEWOBJ */
}

void fsdp_pickle_build(fsdp_pickle_writer *w)
{
    put_op(w, 'b');
}

void fsdp_pickle_put_written(fsdp_pickle_writer *w, const fsdp_str *text)
{
    FSDP_ASSERT(w->text.len == 0);
    FSDP_ASSERT(text->len > 0 && !text->failed);
    fsdp_str_append(&w->text, text->data, text->len);
}

/* Put an integer of any size with the opcode LONG1. `data` [bytes] is its little-endian two's
 * complement. */
static void put_big_int(fsdp_pickle_writer *w, const char *data, size_t bytes)
{
    put_number(w, '\x8a', 1, bytes);
    fsdp_str_append(&w->text, data, bytes);
}

static fsdp_status put_value(fsdp_pickle_writer *w, const fsdp_pickle_value *value);

static fsdp_status put_container(fsdp_pickle_writer *w, const fsdp_pickle_value *value)
{
    const bool counts = value->kind == FSDP_PICKLE_DICT && value->counts;
    if (counts)
        fsdp_pickle_put_global(w, "collections", "Counter");
    fsdp_pickle_begin(w, value->kind);
    for (size_t i = 0; i < value->list.n; i++)
        FSDP_TRY(put_value(w, value->list.items[i]));
    fsdp_pickle_end(w);
    if (counts) {
        put_op(w, TUPLE1);
        fsdp_pickle_call(w);
    }
    return FSDP_OK;
}

static fsdp_status put_value(fsdp_pickle_writer *w, const fsdp_pickle_value *value)
{
    char what[100];
    if (w->text.len > MAX_COPIED_BYTES)
        return fsdp_error(FSDP_ERR_INVALID, "a value is longer than 1 GiB");
    switch (value->kind) {
    case FSDP_PICKLE_NONE:
        fsdp_pickle_put_none(w);
        return FSDP_OK;
    case FSDP_PICKLE_BOOL:
        fsdp_pickle_put_bool(w, value->boolean);
        return FSDP_OK;
    case FSDP_PICKLE_INT:
        fsdp_pickle_put_int(w, value->integer);
        return FSDP_OK;
    case FSDP_PICKLE_FLOAT:
        fsdp_pickle_put_float(w, value->number);
        return FSDP_OK;
    case FSDP_PICKLE_STR:
        put_text(w, value->text.data, value->text.bytes);
        return FSDP_OK;
    case FSDP_PICKLE_BYTES:
        fsdp_pickle_put_bytes(w, value->text.data, value->text.bytes);
        return FSDP_OK;
    case FSDP_PICKLE_TUPLE:
    case FSDP_PICKLE_LIST:
    case FSDP_PICKLE_SET:
    case FSDP_PICKLE_DICT:
        return put_container(w, value);
    case FSDP_PICKLE_BIG_INT:
        if (value->text.bytes <= UINT8_MAX) {
            put_big_int(w, value->text.data, value->text.bytes);
            return FSDP_OK;
        }
        break;
    default:
        break;
    }
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s cannot be written",
                      fsdp_pickle_describe(value, what, sizeof what));
}

fsdp_status fsdp_pickle_put_value(fsdp_pickle_writer *w, const fsdp_pickle_value *value)
{
    if (w->depth + value->depth > FSDP_PICKLE_MAX_DEPTH)
        return fsdp_error(FSDP_ERR_INVALID, "a value is nested more than %d times",
                          FSDP_PICKLE_MAX_DEPTH);
    return put_value(w, value);
}

void fsdp_pickle_persistent(fsdp_pickle_writer *w)
{
    put_op(w, 'Q');
}

char *fsdp_pickle_take(fsdp_pickle_writer *w, size_t *bytes)
{
    fsdp_str whole = {0};
    FSDP_ASSERT(w->depth == 0);
    fsdp_str_append(&whole, "\x80\x02", 2);
    if (w->text.len)
        fsdp_str_append(&whole, w->text.data, w->text.len);
    fsdp_str_append(&whole, ".", 1);
    whole.failed = whole.failed || w->text.failed;
    fsdp_pickle_fini(w);
    *bytes = whole.len;
    return fsdp_str_take(&whole);
}

void fsdp_pickle_fini(fsdp_pickle_writer *w)
{
    fsdp_str_fini(&w->text);
    fsdp_free(w->shared);
    w->shared = NULL;
    w->n_shared = w->shared_cap = 0;
    w->depth = w->n_globals = 0;
}
