/* Values of a template. They correspond to Python's objects in Jinja2. A jinja_value is small and
 * is passed by value. What it points to is in the memory of the rendering (machine.h) or of the
 * parsed template. Values do not change, except for namespaces, loops and iterators. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef enum jinja_kind {
    /* no value, for example of a variable before its assignment; never the result of an
     * expression */
    JINJA_MISSING,
    JINJA_UNDEFINED, /* jinja2.Undefined: it prints as "", but most operations on it are errors */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    /* an integer of a JSON document that does not fit into 64 bits; operators never return it */
    JINJA_BIG_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_RANGE,
    JINJA_VIEW,     /* the result of dict.items(), dict.keys() or dict.values() */
    JINJA_ITERATOR, /* a generator; each of its items can be read only once */
    JINJA_NAMESPACE,
    JINJA_LOOP,     /* the variable `loop` of a for block */
    JINJA_MACRO,    /* a macro, or the caller of a call block */
    JINJA_METHOD,   /* a method of a value, such as text.strip */
    JINJA_FUNCTION, /* a global function, such as range */
} jinja_kind;

struct jinja_args;
struct jinja_machine;

/* UTF-8 text. */
typedef struct jinja_string {
    const char *data; /* [bytes]; no NUL at the end */
    size_t bytes;
    size_t chars; /* number of code points; SIZE_MAX if they have not been counted yet */
    /* The memory that contains `data`, if text may be appended to this string in place; otherwise
     * NULL. */
    struct jinja_buffer *buffer;
} jinja_string;

typedef struct jinja_value {
    jinja_kind kind;
    /* true for a string that the filter `safe` or `escape` has marked (markupsafe.Markup) */
    bool safe;
    union {
        bool boolean;
        int64_t integer;
        double real;
        jinja_string *string; /* for JINJA_STRING and JINJA_BIG_INT */
        struct jinja_undefined *undefined;
        struct jinja_list *list; /* for JINJA_LIST and JINJA_TUPLE */
        struct jinja_dict *dict; /* for JINJA_DICT and JINJA_NAMESPACE */
        struct jinja_range *range;
        struct jinja_view *view;
        struct jinja_iterator *iterator;
        struct jinja_loop *loop;
        struct jinja_macro *macro;
        struct jinja_method *method;
        const struct jinja_function *function;
    } as;
} jinja_value;

/* The origin of an undefined value, for error messages. */
typedef struct jinja_undefined {
    const jinja_string *name; /* name of the variable or attribute; NULL if `hint` is set */
    /* kind of the value that does not have the attribute; JINJA_MISSING: `name` is a variable */
    jinja_kind owner;
    /* the whole error message; NULL: the message is made from `name` and `owner` */
    const char *hint;
} jinja_undefined;

typedef struct jinja_list {
    jinja_value *items; /* [n] */
    size_t n, cap;
} jinja_list;

typedef struct jinja_entry {
    jinja_value key, value;
} jinja_entry;

typedef struct jinja_dict {
    jinja_entry *entries; /* [n], in the order in which the keys were inserted */
    size_t n, cap;
    /* A hash table with open addressing. An element is 0 (empty) or the index of an entry + 1. NULL
     * while the dict has only a few entries. */
    uint32_t *table;
    size_t table_size; /* a power of two */
} jinja_dict;

typedef struct jinja_range {
    int64_t start, stop, step;
    int64_t n; /* number of items */
} jinja_range;

typedef enum jinja_view_kind {
    JINJA_VIEW_ITEMS,
    JINJA_VIEW_KEYS,
    JINJA_VIEW_VALUES,
} jinja_view_kind;

typedef struct jinja_view {
    const jinja_dict *dict;
    jinja_view_kind kind;
} jinja_view;

/* A function that gets the items of an iterator. It sets *item to the next item, or to
 * JINJA_MISSING if there are no more. */
typedef fsdp_status jinja_next_fn(struct jinja_machine *machine, struct jinja_iterator *iterator,
                                  jinja_value *item);

typedef struct jinja_iterator {
    jinja_next_fn *next;
    jinja_value source;           /* the value over which the iterator iterates */
    struct jinja_iterator *inner; /* an iterator over `source`, if the function `next` uses one */
    /* used by `next`: an index into `source`, or an offset in bytes */
    size_t at;
    void *state; /* data for the function `next` */
    bool ended;  /* `next` returned JINJA_MISSING or an error; it is not called again */
} jinja_iterator;

static inline jinja_value jinja_none(void)
{
    return (jinja_value){.kind = JINJA_NONE};
}

static inline jinja_value jinja_bool(bool value)
{
    return (jinja_value){.kind = JINJA_BOOL, .as.boolean = value};
}

static inline jinja_value jinja_int(int64_t value)
{
    return (jinja_value){.kind = JINJA_INT, .as.integer = value};
}

static inline jinja_value jinja_float(double value)
{
    return (jinja_value){.kind = JINJA_FLOAT, .as.real = value};
}

static inline jinja_value jinja_of_string(jinja_string *string)
{
    return (jinja_value){.kind = JINJA_STRING, .as.string = string};
}

/* Return true if the value is missing or undefined. */
static inline bool jinja_is_absent(jinja_value value)
{
    return value.kind <= JINJA_UNDEFINED;
}

/* Return the name that the value's type has in Python, such as "str". */
const char *fsdp_jinja_type_name(jinja_value value);

/* ---- strings ---- */

/* Create a string from data [bytes], which must be UTF-8. The bytes are copied. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_string(struct jinja_machine *machine, const char *data,
                                              size_t bytes, jinja_value *out);
/* Create a string from data [bytes] without copying the bytes. The bytes must stay valid until
 * fsdp_jinja_fini(). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_substring(struct jinja_machine *machine, const char *data,
                                                 size_t bytes, jinja_value *out);
/* Concatenate two strings. If `left` is the result of an earlier call, the time usually depends
 * only on the length of `right`, so a template can build a long text piece by piece. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_concat(struct jinja_machine *machine,
                                              const jinja_string *left, const jinja_string *right,
                                              jinja_value *out);
/* Return the number of code points of the string. */
size_t fsdp_jinja_chars(jinja_string *string);
/* Return the byte offset of the code point `index`. If the string has fewer code points, return its
 * length in bytes. */
size_t fsdp_jinja_offset(jinja_string *string, size_t index);
bool fsdp_jinja_string_is(const jinja_string *string, const char *text);
/* Return the number of bytes of a name that an error message shows: at most 200, and no part of a
 * character. A name may come from a conversation, so it may have any length. */
int fsdp_jinja_shown(const jinja_string *name);

/* ---- lists and dicts ---- */

FSDP_MUST_CHECK fsdp_status fsdp_jinja_list(struct jinja_machine *machine, size_t cap,
                                            jinja_value *out);
FSDP_MUST_CHECK fsdp_status fsdp_jinja_list_add(struct jinja_machine *machine, jinja_list *list,
                                                jinja_value item);
/* Make a tuple of two values. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_pair(struct jinja_machine *machine, jinja_value first,
                                            jinja_value second, jinja_value *out);
FSDP_MUST_CHECK fsdp_status fsdp_jinja_dict(struct jinja_machine *machine, jinja_value *out);
/* Set the value of `key`. Return FSDP_ERR_INVALID if the key cannot be hashed, because it is a list
 * or a dict. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_dict_set(struct jinja_machine *machine, jinja_dict *dict,
                                                jinja_value key, jinja_value value);
/* Set *out to the value of `key`, or to JINJA_MISSING if the dict does not have the key. Return
 * FSDP_ERR_INVALID if the key cannot be hashed. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_dict_get(struct jinja_machine *machine,
                                                const jinja_dict *dict, jinja_value key,
                                                jinja_value *out);
/* Return the value of the key `name`, or JINJA_MISSING. */
jinja_value fsdp_jinja_dict_find(const jinja_dict *dict, const char *name, size_t bytes);

/* ---- comparison ---- */

/* Set *equal to the result of Python's a == b. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_equal(struct jinja_machine *machine, jinja_value a,
                                             jinja_value b, bool *equal);
/* Set *order to -1 if a < b, to 0 if a == b, to 1 if a > b, and to 2 if a or b is NaN. Return
 * FSDP_ERR_INVALID if Python cannot order the two values. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_order(struct jinja_machine *machine, jinja_value a,
                                             jinja_value b, int *order);

/* ---- undefined ---- */

/* Create the undefined value for a missing variable, attribute or item `name`. If `owner` is
 * JINJA_MISSING, `name` is a variable. Otherwise, it is an attribute or item of a value of the kind
 * `owner`. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_undefined(struct jinja_machine *machine, jinja_kind owner,
                                                 const jinja_string *name, jinja_value *out);
/* Create an undefined value with its own error message `hint`, which must have static storage. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_undefined_hint(struct jinja_machine *machine,
                                                      const char *hint, jinja_value *out);
/* Return the error for an operation on an undefined value, such as "'x' is undefined". */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_undefined_error(jinja_value value);
