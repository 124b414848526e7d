/* The stack machine that executes the opcodes of a pickle. Python's pickletools.py describes each
 * opcode. A table maps each opcode to a function. Note [Pickles that cannot hurt] in
 * pickle_reader.h explains the limits of reads, depth and memory. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/arena.h"
#include "src/torchfile/pickle_reader.h"

enum {
    NEWEST_PROTOCOL = 5,
    OP_STOP = '.',
    /* Limit of the memory for all values, in bytes per byte of the pickle. One byte of a pickle
     * makes at most one value and one item of a container, which together need less memory than
     * this limit. So an ordinary pickle stays below the limit. A pickle can exceed it only by
     * converting the same text to bytes, or the same list to a set, many times. */
    MEMORY_FACTOR = 256
};

struct fsdp_pickle {
    fsdp_arena arena; /* owns all values */
    fsdp_pickle_value *root;
};

typedef struct machine {
    fsdp_pickle *pickle;
    const char *label;
    const unsigned char *data; /* [bytes] */
    size_t bytes, at;
    size_t op_at; /* offset of the opcode that is being executed; used in messages */
    const fsdp_pickle_names *names;
    fsdp_pickle_value **stack; /* [depth] */
    size_t depth, stack_cap;
    size_t *marks; /* [n_marks] depth of the stack at each MARK */
    size_t n_marks, marks_cap;
    fsdp_pickle_value **memo; /* [n_memo] values by their numbers; NULL: no value has this number */
    size_t n_memo, memo_cap;
} machine;

/* Consecutive values of the stack, valid until the next push(). */
typedef struct row {
    fsdp_pickle_value **values; /* [n] */
    size_t n;
} row;

static fsdp_status bad_pickle(const machine *m, const char *what)
{
    (void)fsdp_error(FSDP_ERR_FORMAT, "%s: byte %zu of the pickle: %s", m->label, m->op_at, what);
    /* Return the constant instead of the result of fsdp_error(). The compiler does not know that
     * fsdp_error() always returns an error. It would therefore warn that callers may use outputs
     * that were not set. */
    return FSDP_ERR_FORMAT;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static fsdp_status allocate(machine *m, size_t bytes, void **memory)
{
    fsdp_arena *arena = &m->pickle->arena;
    if (bytes / MEMORY_FACTOR > m->bytes || arena->taken / MEMORY_FACTOR > m->bytes)
        return bad_pickle(m, "its values need more memory than a pickle of this size should");
    *memory = fsdp_arena_alloc(arena, bytes);
    return *memory ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status new_value(machine *m, fsdp_pickle_kind kind, fsdp_pickle_value **value)
{
    void *memory;
    FSDP_TRY(allocate(m, sizeof **value, &memory));
    *value = memory;
    (*value)->kind = kind;
    return FSDP_OK;
}

/* ---- the stack, and the bytes of the pickle -------------------------------------------------- */

static fsdp_status push(machine *m, fsdp_pickle_value *value)
{
    if (!FSDP_GROW(m->stack, m->stack_cap, m->depth + 1))
        return FSDP_ERR_NOMEM;
    m->stack[m->depth++] = value;
    return FSDP_OK;
}

static fsdp_status push_new(machine *m, fsdp_pickle_kind kind, fsdp_pickle_value **value)
{
    FSDP_TRY(new_value(m, kind, value));
    return push(m, *value);
}

/* Return FSDP_ERR_FORMAT if fewer than `n` values are on the stack above the topmost mark. */
static fsdp_status require_items(const machine *m, size_t n)
{
    size_t floor = m->n_marks ? m->marks[m->n_marks - 1] : 0;
    return m->depth - floor < n ? bad_pickle(m, "too few values on the stack") : FSDP_OK;
}

static fsdp_status pop(machine *m, fsdp_pickle_value **value)
{
    FSDP_TRY(require_items(m, 1));
    *value = m->stack[--m->depth];
    return FSDP_OK;
}

/* Remove the topmost mark and the values above it from the stack. *above is set to these values. */
static fsdp_status pop_mark(machine *m, row *above)
{
    if (m->n_marks == 0)
        return bad_pickle(m, "there is no mark");
    size_t floor = m->marks[--m->n_marks];
    *above = (row){m->stack + floor, m->depth - floor};
    m->depth = floor;
    return FSDP_OK;
}

static fsdp_status read_bytes(machine *m, size_t n, const unsigned char **p)
{
    if (n > m->bytes - m->at)
        return bad_pickle(m, "it ends within an opcode's argument");
    *p = m->data + m->at;
    m->at += n;
    return FSDP_OK;
}

/* Read an unsigned integer of `width` bytes. */
static fsdp_status read_uint(machine *m, unsigned width, uint64_t *value)
{
    const unsigned char *p;
    FSDP_TRY(read_bytes(m, width, &p));
    *value = 0;
    for (unsigned i = width; i-- > 0;)
        *value = *value << 8 | p[i];
    return FSDP_OK;
}

/* ---- values that hold other values ----------------------------------------------------------- */

/* Record that `holder` contains ("holds") `value`. Return FSDP_ERR_FORMAT if another value already
 * holds `holder`, because a held value must not change. Also return FSDP_ERR_FORMAT if `value` is
 * nested too deeply. */
static fsdp_status hold(const machine *m, fsdp_pickle_value *holder, fsdp_pickle_value *value)
{
    if (holder->held || holder == value)
        return bad_pickle(m, "a value is changed that another one already holds");
    if (value->depth >= FSDP_PICKLE_MAX_DEPTH)
        return bad_pickle(m, "values are nested too deeply");
    value->held = true;
    holder->opaque |= value->opaque;
    if (holder->depth <= value->depth)
        holder->depth = (uint16_t)(value->depth + 1);
    return FSDP_OK;
}

/* Append `items` [n] to the items of `holder`, a TUPLE, LIST, SET, DICT or PERSISTENT. */
static fsdp_status add_items(machine *m, fsdp_pickle_value *holder, fsdp_pickle_value **items,
                             size_t n)
{
    size_t need_cap = holder->list.n + n;
    if (need_cap > holder->list.cap) {
        size_t cap = holder->list.cap ? 2 * holder->list.cap : n;
        void *grown;
        if (cap < need_cap)
            cap = need_cap;
        FSDP_TRY(allocate(m, cap * sizeof *items, &grown));
        if (holder->list.n)
            memcpy(grown, holder->list.items, holder->list.n * sizeof *items);
        holder->list.items = grown;
        holder->list.cap = cap;
    }
    for (size_t i = 0; i < n; i++) {
        FSDP_TRY(hold(m, holder, items[i]));
        holder->list.items[holder->list.n++] = items[i];
    }
    return FSDP_OK;
}

/* ---- scalars --------------------------------------------------------------------------------- */

static fsdp_status op_skip(machine *m, unsigned bytes) /* FRAME */
{
    const unsigned char *p;
    return read_bytes(m, bytes, &p);
}

static fsdp_status op_protocol(machine *m, unsigned bytes)
{
    uint64_t protocol;
    FSDP_TRY(read_uint(m, bytes, &protocol));
    return protocol > NEWEST_PROTOCOL ? bad_pickle(m, "its protocol is newer than 5") : FSDP_OK;
}

static fsdp_status op_none(machine *m, unsigned unused)
{
    (void)unused;
    fsdp_pickle_value *value;
    return push_new(m, FSDP_PICKLE_NONE, &value);
}

static fsdp_status op_bool(machine *m, unsigned boolean)
{
    fsdp_pickle_value *value;
    FSDP_TRY(push_new(m, FSDP_PICKLE_BOOL, &value));
    value->boolean = boolean;
    return FSDP_OK;
}

static fsdp_status push_int(machine *m, int64_t integer)
{
    fsdp_pickle_value *value;
    FSDP_TRY(push_new(m, FSDP_PICKLE_INT, &value));
    value->integer = integer;
    return FSDP_OK;
}

static fsdp_status op_uint(machine *m, unsigned width)
{
    uint64_t integer;
    FSDP_TRY(read_uint(m, width, &integer));
    return push_int(m, (int64_t)integer);
}

static fsdp_status op_int32(machine *m, unsigned width)
{
    uint64_t integer;
    FSDP_TRY(read_uint(m, width, &integer));
    return push_int(m, (int32_t)(uint32_t)integer);
}

/* LONG1 and LONG4: read a count, which has `width` bytes. Then read a two's complement number of
 * that many bytes. */
static fsdp_status op_long(machine *m, unsigned width)
{
    uint64_t n, bits = 0;
    const unsigned char *p;
    FSDP_TRY(read_uint(m, width, &n));
    FSDP_TRY(read_bytes(m, (size_t)n, &p));
    if (n > 8) {
        fsdp_pickle_value *value;
        FSDP_TRY(push_new(m, FSDP_PICKLE_BIG_INT, &value));
        value->text.data = (const char *)p;
        value->text.bytes = (size_t)n;
        return FSDP_OK;
    }
    if (n > 0 && p[n - 1] & 0x80)
        bits = UINT64_MAX;
    for (size_t i = (size_t)n; i-- > 0;)
        bits = bits << 8 | p[i];
    return push_int(m, (int64_t)bits);
}

static fsdp_status op_float(machine *m, unsigned bytes)
{
    const unsigned char *p;
    fsdp_pickle_value *value;
    uint64_t bits = 0;
    FSDP_TRY(read_bytes(m, bytes, &p));
    for (unsigned i = 0; i < bytes; i++) /* the only big-endian number in the format */
        bits = bits << 8 | p[i];
    FSDP_TRY(push_new(m, FSDP_PICKLE_FLOAT, &value));
    memcpy(&value->number, &bits, sizeof bits);
    return FSDP_OK;
}

static fsdp_status push_text(machine *m, fsdp_pickle_kind kind, unsigned width)
{
    uint64_t n;
    const unsigned char *p;
    fsdp_pickle_value *value;
    void *copy;
    FSDP_TRY(read_uint(m, width, &n));
    FSDP_TRY(read_bytes(m, (size_t)n, &p));
    FSDP_TRY(allocate(m, (size_t)n + 1, &copy));
    FSDP_TRY(push_new(m, kind, &value));
    value->text.data = memcpy(copy, p, (size_t)n);
    value->text.bytes = (size_t)n;
    return FSDP_OK;
}

static fsdp_status op_str(machine *m, unsigned width)
{
    return push_text(m, FSDP_PICKLE_STR, width);
}

static fsdp_status op_bytes(machine *m, unsigned width)
{
    return push_text(m, FSDP_PICKLE_BYTES, width);
}

/* ---- containers ------------------------------------------------------------------------------ */

static fsdp_status op_mark(machine *m, unsigned unused)
{
    (void)unused;
    /* Allocate the stack, too, even if it has no values yet: pop_mark() adds an offset to m->stack,
     * so m->stack must not be NULL. */
    if (!FSDP_GROW(m->marks, m->marks_cap, m->n_marks + 1) ||
        !FSDP_GROW(m->stack, m->stack_cap, m->depth + 1))
        return FSDP_ERR_NOMEM;
    m->marks[m->n_marks++] = m->depth;
    return FSDP_OK;
}

static fsdp_status op_empty(machine *m, unsigned kind)
{
    fsdp_pickle_value *value;
    return push_new(m, (fsdp_pickle_kind)kind, &value);
}

static fsdp_status push_tuple(machine *m, fsdp_pickle_value **items, size_t n)
{
    fsdp_pickle_value *tuple;
    FSDP_TRY(new_value(m, FSDP_PICKLE_TUPLE, &tuple));
    FSDP_TRY(add_items(m, tuple, items, n));
    return push(m, tuple);
}

static fsdp_status op_tuple_n(machine *m, unsigned n)
{
    FSDP_TRY(require_items(m, n));
    m->depth -= n;
    return push_tuple(m, m->stack + m->depth, n);
}

static fsdp_status op_tuple(machine *m, unsigned unused)
{
    (void)unused;
    row above = {0};
    FSDP_TRY(pop_mark(m, &above));
    return push_tuple(m, above.values, above.n);
}

/* Append `items` [n] to the container on top of the stack, which must be of kind `kind`. If the
 * container is an OPAQUE value, ignore the items. */
static fsdp_status fill_top(machine *m, fsdp_pickle_kind kind, fsdp_pickle_value **items, size_t n)
{
    FSDP_TRY(require_items(m, 1));
    fsdp_pickle_value *container = m->stack[m->depth - 1];
    if (container->kind == FSDP_PICKLE_OPAQUE)
        return FSDP_OK;
    if (container->kind != kind)
        return bad_pickle(
            m, kind == FSDP_PICKLE_DICT   ? "items are set in a value that is not a dict"
               : kind == FSDP_PICKLE_LIST ? "items are appended to a value that is not a list"
                                          : "items are added to a value that is not a set");
    if (kind == FSDP_PICKLE_DICT && n % 2 != 0)
        return bad_pickle(m, "a key without a value");
    return add_items(m, container, items, n);
}

static fsdp_status op_fill(machine *m, unsigned kind) /* APPENDS, SETITEMS */
{
    row above = {0};
    FSDP_TRY(pop_mark(m, &above));
    return fill_top(m, (fsdp_pickle_kind)kind, above.values, above.n);
}

static fsdp_status op_fill_one(machine *m, unsigned kind) /* APPEND, SETITEM */
{
    size_t n = kind == FSDP_PICKLE_DICT ? 2 : 1;
    FSDP_TRY(require_items(m, n));
    m->depth -= n;
    return fill_top(m, (fsdp_pickle_kind)kind, m->stack + m->depth, n);
}

/* ---- the memo -------------------------------------------------------------------------------- */

/* Store the value on top of the stack in the memo under `number`. Python uses the numbers 0, 1, 2,
 * ..., and each store takes at least one byte of the pickle. A valid number is therefore less than
 * the size of the pickle. */
static fsdp_status memoize(machine *m, uint64_t number)
{
    FSDP_TRY(require_items(m, 1));
    if (number >= m->bytes)
        return bad_pickle(m, "a number in the memo is too large");
    if (!FSDP_GROW(m->memo, m->memo_cap, (size_t)number + 1))
        return FSDP_ERR_NOMEM;
    while (m->n_memo <= number)
        m->memo[m->n_memo++] = NULL;
    m->memo[number] = m->stack[m->depth - 1];
    return FSDP_OK;
}

static fsdp_status op_put(machine *m, unsigned width)
{
    uint64_t number = m->n_memo;
    if (width > 0) /* MEMOIZE has width 0 and uses the next number */
        FSDP_TRY(read_uint(m, width, &number));
    return memoize(m, number);
}

static fsdp_status op_get(machine *m, unsigned width)
{
    uint64_t number;
    FSDP_TRY(read_uint(m, width, &number));
    if (number >= m->n_memo || !m->memo[number])
        return bad_pickle(m, "nothing has this number in the memo");
    m->memo[number]->held = true;
    return push(m, m->memo[number]);
}

/* ---- names and calls ------------------------------------------------------------------------- */

static bool equals(const char *known, const char *text, size_t bytes)
{
    return strlen(known) == bytes && memcmp(known, text, bytes) == 0;
}

static bool is_module(const char *known, const char *text, size_t bytes)
{
    const size_t n = known ? strlen(known) : 0;
    if (n == 0)
        return true;
    if (known[n - 1] == '*')
        return bytes > n - 1 && memcmp(known, text, n - 1) == 0;
    return equals(known, text, bytes);
}

static fsdp_status copy_text(machine *m, const char *text, size_t bytes, const char **copy)
{
    void *memory;
    FSDP_TRY(allocate(m, bytes + 1, &memory));
    *copy = memcpy(memory, text, bytes);
    return FSDP_OK;
}

static fsdp_status push_opaque(machine *m, const fsdp_pickle_name *of)
{
    fsdp_pickle_value *value;
    FSDP_TRY(push_new(m, FSDP_PICKLE_OPAQUE, &value));
    value->name = of;
    value->opaque = true;
    return FSDP_OK;
}

static fsdp_status push_unknown(machine *m, const char *module, size_t module_bytes,
                                const char *name, size_t name_bytes)
{
    void *memory;
    FSDP_TRY(allocate(m, sizeof(fsdp_pickle_name), &memory));
    fsdp_pickle_name *unknown = memory;
    unknown->meaning = FSDP_PICKLE_UNKNOWN;
    FSDP_TRY(copy_text(m, module, module_bytes, &unknown->module));
    FSDP_TRY(copy_text(m, name, name_bytes, &unknown->name));
    return push_opaque(m, unknown);
}

static fsdp_status push_name(machine *m, const char *module, size_t module_bytes, const char *name,
                             size_t name_bytes)
{
    fsdp_pickle_value *value;
    for (const fsdp_pickle_names *list = m->names; list; list = list->also)
        for (size_t i = 0; i < list->n; i++) {
            const fsdp_pickle_name *known = &list->items[i];
            if (!equals(known->name, name, name_bytes) ||
                !is_module(known->module, module, module_bytes))
                continue;
            FSDP_TRY(push_new(m, FSDP_PICKLE_NAME, &value));
            value->name = known;
            return FSDP_OK;
        }
    return push_unknown(m, module, module_bytes, name, name_bytes);
}

static fsdp_status read_line(machine *m, const char **line, size_t *bytes)
{
    const unsigned char *p = m->data + m->at, *end = memchr(p, '\n', m->bytes - m->at);
    if (!end)
        return bad_pickle(m, "it ends within a name");
    *line = (const char *)p;
    *bytes = (size_t)(end - p);
    m->at += *bytes + 1;
    return FSDP_OK;
}

static fsdp_status op_global(machine *m, unsigned unused)
{
    (void)unused;
    const char *module, *name;
    size_t module_bytes, name_bytes;
    FSDP_TRY(read_line(m, &module, &module_bytes));
    FSDP_TRY(read_line(m, &name, &name_bytes));
    return push_name(m, module, module_bytes, name, name_bytes);
}

static fsdp_status op_stack_global(machine *m, unsigned unused)
{
    (void)unused;
    fsdp_pickle_value *name, *module;
    FSDP_TRY(pop(m, &name));
    FSDP_TRY(pop(m, &module));
    if (name->kind != FSDP_PICKLE_STR || module->kind != FSDP_PICKLE_STR)
        return bad_pickle(m, "a name that is not a text");
    return push_name(m, module->text.data, module->text.bytes, name->text.data, name->text.bytes);
}

/* Push a BYTES value with one byte for each character of a UTF-8 text. Returns FSDP_ERR_FORMAT if a
 * character is above U+00FF. */
static fsdp_status push_encoded(machine *m, const fsdp_pickle_value *args)
{
    fsdp_pickle_value *value;
    void *memory;
    const fsdp_pickle_value *text = fsdp_pickle_at(args, 0);
    if (text && text->kind != FSDP_PICKLE_STR)
        return bad_pickle(m, "bytes are made of a value that is not a text");
    size_t n = text ? text->text.bytes : 0, used = 0;
    FSDP_TRY(allocate(m, n + 1, &memory));
    char *bytes = memory;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text->text.data[i];
        if (c >= 0x80) {
            /* Byte i + 1 exists, because the text ends with a NUL. */
            unsigned char next = (unsigned char)text->text.data[i + 1];
            if ((c != 0xC2 && c != 0xC3) || (next & 0xC0) != 0x80)
                return bad_pickle(m, "bytes are made of text that is not Latin-1");
            c = (unsigned char)(c << 6 | (next & 0x3F));
            i++;
        }
        bytes[used++] = (char)c;
    }
    FSDP_TRY(push_new(m, FSDP_PICKLE_BYTES, &value));
    value->text.data = bytes;
    value->text.bytes = used;
    return FSDP_OK;
}

static fsdp_status push_record(machine *m, const fsdp_pickle_name *callee, fsdp_pickle_value *args)
{
    fsdp_pickle_value *value;
    FSDP_TRY(new_value(m, FSDP_PICKLE_RECORD, &value));
    FSDP_TRY(hold(m, value, args));
    value->record.callee = callee;
    value->record.args = args;
    return push(m, value);
}

/* Push the SET that a call like set([1, 2]) makes. `args` has the list, or is empty. */
static fsdp_status push_set(machine *m, const fsdp_pickle_value *args)
{
    fsdp_pickle_value *set, *const *items = args->list.items;
    if (args->list.n > 1 || (args->list.n == 1 && items[0]->kind != FSDP_PICKLE_LIST))
        return bad_pickle(m, "a set is made of a value that is not a list");
    FSDP_TRY(new_value(m, FSDP_PICKLE_SET, &set));
    if (args->list.n)
        FSDP_TRY(add_items(m, set, items[0]->list.items, items[0]->list.n));
    return push(m, set);
}

static fsdp_status push_counter(machine *m, const fsdp_pickle_value *args)
{
    fsdp_pickle_value *counter;
    if (args->list.n != 1 || args->list.items[0]->kind != FSDP_PICKLE_DICT)
        return bad_pickle(m, "a counter is made of a value that is not a dict");
    const fsdp_pickle_value *dict = args->list.items[0];
    FSDP_TRY(new_value(m, FSDP_PICKLE_DICT, &counter));
    counter->counts = true;
    FSDP_TRY(add_items(m, counter, dict->list.items, dict->list.n));
    return push(m, counter);
}

static bool is_plain(const fsdp_pickle_value *value)
{
    return value->depth == 0 ||
           (value->depth == 1 &&
            (value->kind == FSDP_PICKLE_TUPLE || value->kind == FSDP_PICKLE_LIST ||
             value->kind == FSDP_PICKLE_SET || value->kind == FSDP_PICKLE_DICT));
}

/* Check that all attributes of a tensor are plain values. The reader ignores attributes, so a
 * tensor among them would be lost. */
static fsdp_status check_attributes(const machine *m, const fsdp_pickle_value *attributes)
{
    if (attributes->kind != FSDP_PICKLE_DICT)
        return bad_pickle(m, "attributes that are not a dict");
    for (size_t i = 0; i < attributes->list.n; i++)
        if (!is_plain(attributes->list.items[i]))
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "%s: byte %zu of the pickle: a tensor has an attribute that is not "
                              "a plain value",
                              m->label, m->op_at);
    return FSDP_OK;
}

/* If `attributes` is the tuple (None, dict), return the dict; otherwise return NULL. Objects of a
 * class with __slots__, such as DTensor, have attributes of this form. */
static fsdp_pickle_value *slots_of(const fsdp_pickle_value *attributes)
{
    if (attributes->kind != FSDP_PICKLE_TUPLE || attributes->list.n != 2 ||
        attributes->list.items[0]->kind != FSDP_PICKLE_NONE ||
        attributes->list.items[1]->kind != FSDP_PICKLE_DICT)
        return NULL;
    return attributes->list.items[1];
}

/* Push the result of calling a function that has the meaning FSDP_PICKLE_REBUILD. PyTorch uses this
 * function for a tensor that has attributes. FSDP1, for example, adds an attribute to the tensors
 * of its state dicts. */
static fsdp_status push_rebuilt(machine *m, const fsdp_pickle_value *args)
{
    enum {
        FUNCTION,
        TYPE,
        ARGUMENTS,
        ATTRIBUTES,
        N
    };
    fsdp_pickle_value *const *of = args->list.items;
    /* If the function or the class is missing from the caller's list of names, the result is
     * OPAQUE. An example is the function that makes quantized weights. */
    for (size_t i = FUNCTION; i <= TYPE && args->list.n == N; i++)
        if (of[i]->kind == FSDP_PICKLE_OPAQUE)
            return push_opaque(m, of[i]->name);
    if (args->list.n != N || of[FUNCTION]->kind != FSDP_PICKLE_NAME ||
        of[FUNCTION]->name->meaning != FSDP_PICKLE_CALL || of[TYPE]->kind != FSDP_PICKLE_NAME ||
        of[TYPE]->name->meaning != FSDP_PICKLE_TYPE || of[ARGUMENTS]->kind != FSDP_PICKLE_TUPLE)
        return bad_pickle(m, "a tensor with attributes that is not made by a function");
    fsdp_pickle_value *slots = slots_of(of[ATTRIBUTES]);
    if (!slots) {
        FSDP_TRY(check_attributes(m, of[ATTRIBUTES]));
        return push_record(m, of[FUNCTION]->name, of[ARGUMENTS]);
    }
    FSDP_TRY(push_record(m, of[FUNCTION]->name, of[ARGUMENTS]));
    fsdp_pickle_value *object = m->stack[m->depth - 1];
    FSDP_TRY(hold(m, object, slots));
    object->record.state = slots;
    return FSDP_OK;
}

static fsdp_status op_call(machine *m, unsigned unused) /* REDUCE, NEWOBJ */
{
    (void)unused;
    fsdp_pickle_value *args, *callee;
    FSDP_TRY(pop(m, &args));
    FSDP_TRY(pop(m, &callee));
    if (callee->kind == FSDP_PICKLE_OPAQUE && args->kind == FSDP_PICKLE_TUPLE)
        return push_opaque(m, callee->name);
    if (callee->kind != FSDP_PICKLE_NAME || args->kind != FSDP_PICKLE_TUPLE)
        return bad_pickle(
            m, "a call of a value that is not a function, or without a tuple of arguments");
    switch (callee->name->meaning) {
    case FSDP_PICKLE_CALL:
        return push_record(m, callee->name, args);
    case FSDP_PICKLE_FIRST:
        return args->list.n ? push(m, args->list.items[0])
                            : bad_pickle(m, "a call without arguments");
    case FSDP_PICKLE_MAKE_SET:
        return push_set(m, args);
    case FSDP_PICKLE_EMPTY:
        return args->list.n ? bad_pickle(m, "a dict is made of arguments")
                            : op_empty(m, FSDP_PICKLE_DICT);
    case FSDP_PICKLE_COUNT:
        return push_counter(m, args);
    case FSDP_PICKLE_ENCODE:
        return push_encoded(m, args);
    case FSDP_PICKLE_REBUILD:
        return push_rebuilt(m, args);
    case FSDP_PICKLE_CONSTANT:
    case FSDP_PICKLE_UNKNOWN: /* cannot occur: the value of a name with this meaning is OPAQUE, and
                                 the code above handles OPAQUE values */
    case FSDP_PICKLE_TYPE:
        break;
    }
    return bad_pickle(m, "a call of a value that is not a function");
}

/* NEWOBJ_EX: call a class with positional and named arguments. Named arguments are accepted only if
 * the class is an OPAQUE value, because all arguments of such a call are ignored. */
static fsdp_status op_call_by_names(machine *m, unsigned unused)
{
    fsdp_pickle_value *names;
    FSDP_TRY(pop(m, &names));
    if (names->kind != FSDP_PICKLE_DICT)
        return bad_pickle(m, "arguments by name that are not a dict");
    FSDP_TRY(require_items(m, 2));
    if (names->list.n && m->stack[m->depth - 2]->kind != FSDP_PICKLE_OPAQUE)
        return bad_pickle(m, "a call with arguments by name");
    return op_call(m, unused);
}

/* POP: remove the value on top of the stack. Python writes this opcode when it pickles a tuple that
 * contains itself: it must then remove the items of the tuple from the stack. */
static fsdp_status op_pop(machine *m, unsigned unused)
{
    (void)unused;
    fsdp_pickle_value *value;
    return pop(m, &value);
}

static fsdp_status op_pop_mark(machine *m, unsigned unused)
{
    (void)unused;
    row above = {0};
    return pop_mark(m, &above);
}

/* FROZENSET: push an OPAQUE value. This opcode exists since protocol 4. A pickle of an earlier
 * protocol calls the function frozenset() instead. The result of this call is OPAQUE, too. */
static fsdp_status op_frozenset(machine *m, unsigned unused)
{
    (void)unused;
    static const fsdp_pickle_name frozenset = {"builtins", "frozenset", FSDP_PICKLE_UNKNOWN};
    row above = {0};
    FSDP_TRY(pop_mark(m, &above));
    return push_opaque(m, &frozenset);
}

/* BUILD: pop a state, and set the state of the value below it. Only a RECORD gets the state. If the
 * value is OPAQUE, the state is ignored. If the value is a DICT, the call OrderedDict() made it,
 * and the state contains attributes of the OrderedDict. These attributes are ignored, too. */
static fsdp_status op_build(machine *m, unsigned unused)
{
    (void)unused;
    fsdp_pickle_value *state;
    FSDP_TRY(pop(m, &state));
    FSDP_TRY(require_items(m, 1));
    fsdp_pickle_value *object = m->stack[m->depth - 1];
    if (object->kind == FSDP_PICKLE_DICT || object->kind == FSDP_PICKLE_OPAQUE)
        return FSDP_OK;
    if (object->kind != FSDP_PICKLE_RECORD || object->record.state)
        return bad_pickle(m, "a state for what has none, or has one");
    FSDP_TRY(hold(m, object, state));
    object->record.state = state;
    return FSDP_OK;
}

static fsdp_status op_persistent(machine *m, unsigned unused)
{
    (void)unused;
    fsdp_pickle_value *id, *value;
    FSDP_TRY(pop(m, &id));
    FSDP_TRY(push_new(m, FSDP_PICKLE_PERSISTENT, &value));
    return add_items(m, value, &id, 1);
}

/* ---- the table of opcodes and the main loop -------------------------------------------------- */

typedef struct opcode {
    fsdp_status (*run)(machine *m, unsigned argument);
    unsigned argument;
} opcode;

static const opcode opcodes[256] = {
    [0x80] = {op_protocol, 1},                /* PROTO */
    [0x95] = {op_skip, 8},                    /* FRAME */
    [0x4e] = {op_none, 0},                    /* NONE */
    [0x88] = {op_bool, true},                 /* NEWTRUE */
    [0x89] = {op_bool, false},                /* NEWFALSE */
    [0x4b] = {op_uint, 1},                    /* BININT1 */
    [0x4d] = {op_uint, 2},                    /* BININT2 */
    [0x4a] = {op_int32, 4},                   /* BININT */
    [0x8a] = {op_long, 1},                    /* LONG1 */
    [0x8b] = {op_long, 4},                    /* LONG4 */
    [0x47] = {op_float, 8},                   /* BINFLOAT */
    [0x8c] = {op_str, 1},                     /* SHORT_BINUNICODE */
    [0x58] = {op_str, 4},                     /* BINUNICODE */
    [0x8d] = {op_str, 8},                     /* BINUNICODE8 */
    [0x55] = {op_str, 1},                     /* SHORT_BINSTRING */
    [0x54] = {op_str, 4},                     /* BINSTRING */
    [0x43] = {op_bytes, 1},                   /* SHORT_BINBYTES */
    [0x42] = {op_bytes, 4},                   /* BINBYTES */
    [0x8e] = {op_bytes, 8},                   /* BINBYTES8 */
    [0x96] = {op_bytes, 8},                   /* BYTEARRAY8 */
    [0x28] = {op_mark, 0},                    /* MARK */
    [0x29] = {op_empty, FSDP_PICKLE_TUPLE},   /* EMPTY_TUPLE */
    [0x5d] = {op_empty, FSDP_PICKLE_LIST},    /* EMPTY_LIST */
    [0x7d] = {op_empty, FSDP_PICKLE_DICT},    /* EMPTY_DICT */
    [0x8f] = {op_empty, FSDP_PICKLE_SET},     /* EMPTY_SET */
    [0x74] = {op_tuple, 0},                   /* TUPLE */
    [0x85] = {op_tuple_n, 1},                 /* TUPLE1 */
    [0x86] = {op_tuple_n, 2},                 /* TUPLE2 */
    [0x87] = {op_tuple_n, 3},                 /* TUPLE3 */
    [0x61] = {op_fill_one, FSDP_PICKLE_LIST}, /* APPEND */
    [0x65] = {op_fill, FSDP_PICKLE_LIST},     /* APPENDS */
    [0x90] = {op_fill, FSDP_PICKLE_SET},      /* ADDITEMS */
    [0x73] = {op_fill_one, FSDP_PICKLE_DICT}, /* SETITEM */
    [0x75] = {op_fill, FSDP_PICKLE_DICT},     /* SETITEMS */
    [0x94] = {op_put, 0},                     /* MEMOIZE */
    [0x71] = {op_put, 1},                     /* BINPUT */
    [0x72] = {op_put, 4},                     /* LONG_BINPUT */
    [0x68] = {op_get, 1},                     /* BINGET */
    [0x6a] = {op_get, 4},                     /* LONG_BINGET */
    [0x63] = {op_global, 0},                  /* GLOBAL */
    [0x93] = {op_stack_global, 0},            /* STACK_GLOBAL */
    [0x52] = {op_call, 0},                    /* REDUCE */
    [0x81] = {op_call, 0},                    /* NEWOBJ */
    [0x92] = {op_call_by_names, 0},           /* NEWOBJ_EX */
    [0x30] = {op_pop, 0},                     /* POP */
    [0x31] = {op_pop_mark, 0},                /* POP_MARK */
    [0x91] = {op_frozenset, 0},               /* FROZENSET */
    [0x62] = {op_build, 0},                   /* BUILD */
    [0x51] = {op_persistent, 0},              /* BINPERSID */
};

static fsdp_status step(machine *m, unsigned char op)
{
    const opcode *known = &opcodes[op];
    if (!known->run)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: byte %zu of the pickle: unknown opcode 0x%02x",
                          m->label, m->op_at, op);
    return known->run(m, known->argument);
}

static fsdp_status run(machine *m)
{
    unsigned char op = 0;
    while (op != OP_STOP) {
        m->op_at = m->at;
        if (m->at == m->bytes)
            return bad_pickle(m, "it ends without STOP");
        op = m->data[m->at++];
        if (op != OP_STOP)
            FSDP_TRY(step(m, op));
    }
    if (m->depth != 1 || m->n_marks)
        return bad_pickle(m, "it does not end with one value");
    m->pickle->root = m->stack[0];
    return FSDP_OK;
}

fsdp_status fsdp_pickle_create(const char *label, const void *data, size_t bytes,
                               const fsdp_pickle_names *names, fsdp_pickle **pickle)
{
    machine m = {.label = label, .data = data, .bytes = bytes, .names = names};
    m.pickle = fsdp_calloc(1, sizeof *m.pickle);
    fsdp_status status = m.pickle ? run(&m) : FSDP_ERR_NOMEM;
    fsdp_free(m.stack);
    fsdp_free(m.marks);
    fsdp_free(m.memo);
    if (status != FSDP_OK) {
        fsdp_pickle_destroy(m.pickle);
        return status;
    }
    *pickle = m.pickle;
    return FSDP_OK;
}

void fsdp_pickle_destroy(fsdp_pickle *pickle)
{
    if (!pickle)
        return;
    fsdp_arena_fini(&pickle->arena);
    fsdp_free(pickle);
}

const fsdp_pickle_value *fsdp_pickle_root(const fsdp_pickle *pickle)
{
    return pickle->root;
}
