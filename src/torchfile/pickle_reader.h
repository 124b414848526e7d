/* Reads Python's pickles as data, as a tree of values. Nothing is imported and nothing is run.
 *
 * A pickle is a program for a stack machine. It may name any function of any module and call it.
 * This reader knows only the names in the caller's list. Any other name becomes an opaque value,
 * and so does the result of calling it: the name is kept, the arguments are skipped. Most calls of
 * known names become records, which hold the callee, its arguments and its state. Protocols 2 to 5
 * are read, with all opcodes that PyTorch's files use.
 *
 * Note [Pickles that cannot hurt]. Every read is checked against the pickle's end. A value can be
 * changed only until something holds it (another value, or a second place on the stack), so no
 * value can hold itself, and the depth of each value is known and at most FSDP_PICKLE_MAX_DEPTH.
 * Memory is bounded by a multiple of the pickle's size. One value may be held by many others,
 * though, so walking all paths through a hostile tree could take forever. Readers therefore go
 * directly to the values that they need. */
#pragma once
#include <fsdp/base.h>

enum {
    FSDP_PICKLE_MAX_DEPTH = 100
};

typedef enum fsdp_pickle_kind {
    FSDP_PICKLE_NONE,
    FSDP_PICKLE_BOOL,
    FSDP_PICKLE_INT,
    FSDP_PICKLE_BIG_INT, /* an int that needs more than 64 bits */
    FSDP_PICKLE_FLOAT,
    FSDP_PICKLE_STR,
    FSDP_PICKLE_BYTES,
    FSDP_PICKLE_TUPLE,
    FSDP_PICKLE_LIST,
    FSDP_PICKLE_SET,  /* the order of its items has no meaning */
    FSDP_PICKLE_DICT, /* dict or OrderedDict */
    FSDP_PICKLE_NAME, /* a class, function or constant */
    FSDP_PICKLE_RECORD,
    FSDP_PICKLE_OPAQUE, /* made by a class or function that is not in the caller's list, such as a
                           NumPy number, a Path or a Namespace; `name` is that class or function */
    FSDP_PICKLE_PERSISTENT /* a persistent id; the id itself is its only item */
} fsdp_pickle_kind;

/* What is made by a call of a name that is in the caller's list. */
typedef enum fsdp_pickle_meaning {
    FSDP_PICKLE_CONSTANT, /* nothing: the name may not be called */
    FSDP_PICKLE_CALL,     /* a RECORD of the call */
    FSDP_PICKLE_FIRST,    /* the call's first argument: torch.Size((2, 3)) is (2, 3) */
    FSDP_PICKLE_MAKE_SET, /* a SET of the items of a list; an empty SET if there is no argument */
    FSDP_PICKLE_EMPTY,    /* an empty DICT, from a call without arguments: OrderedDict() */
    FSDP_PICKLE_COUNT,    /* a DICT whose `counts` is true, made from a dict: Counter({1: 2}) */
    FSDP_PICKLE_ENCODE,   /* BYTES from a text with characters up to U+00FF; empty BYTES if there is
                             no argument */
    FSDP_PICKLE_UNKNOWN,  /* an OPAQUE value; names outside the list have this meaning */
    FSDP_PICKLE_TYPE,     /* like CONSTANT, but it may be the TYPE of a REBUILD */
    FSDP_PICKLE_REBUILD   /* a RECORD of function(*arguments); the arguments of the call itself are
                             (function, TYPE, arguments, attributes) */
} fsdp_pickle_meaning;

typedef struct fsdp_pickle_name {
    const char *module; /* NULL: any module; "a.*": any module below a, for classes that PyTorch has
                           moved */
    const char *name;
    fsdp_pickle_meaning meaning;
} fsdp_pickle_name;

typedef struct fsdp_pickle_value fsdp_pickle_value;
struct fsdp_pickle_value {
    fsdp_pickle_kind kind;
    uint16_t depth; /* levels of values below this one */
    bool held;      /* held by another value or a second place on the stack; must not change */
    bool counts;    /* DICT: it is a collections.Counter */
    bool opaque;    /* it is OPAQUE, or holds an OPAQUE value */
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct {
            const char *data; /* STR, BYTES: [bytes] and a NUL; BIG_INT: little-endian two's
                                 complement */
            size_t bytes;
        } text;
        struct {
            fsdp_pickle_value **items; /* [n]; DICT: key, value, key, value, ... */
            size_t n, cap;
        } list;                       /* TUPLE, LIST, SET, DICT, PERSISTENT */
        const fsdp_pickle_name *name; /* NAME, OPAQUE */
        struct {
            const fsdp_pickle_name *callee;
            fsdp_pickle_value *args;  /* a TUPLE */
            fsdp_pickle_value *state; /* set by BUILD or REBUILD, usually a DICT; NULL: never set */
        } record;
    };
};

/* A list of names, each with its meaning. */
typedef struct fsdp_pickle_names {
    const fsdp_pickle_name *items; /* [n] static */
    size_t n;
    const struct fsdp_pickle_names *also; /* a list that is searched after this one, or NULL */
} fsdp_pickle_names;

typedef struct fsdp_pickle fsdp_pickle;

/* Read the first value of `data` [bytes]. `label` is the prefix of messages. FSDP_ERR_FORMAT naming
 * the byte if the pickle is malformed; FSDP_ERR_UNSUPPORTED for opcodes of other protocols. */
FSDP_MUST_CHECK fsdp_status fsdp_pickle_create(const char *label, const void *data, size_t bytes,
                                               const fsdp_pickle_names *names,
                                               fsdp_pickle **pickle);
void fsdp_pickle_destroy(fsdp_pickle *pickle); /* accepts NULL; frees all values */
/* Return the outermost value, which is valid until the pickle is destroyed. */
const fsdp_pickle_value *fsdp_pickle_root(const fsdp_pickle *pickle);

/* ---- values (all functions accept NULL, which has no kind) ---- */
bool fsdp_pickle_is(const fsdp_pickle_value *value, fsdp_pickle_kind kind);
/* Describe a value for messages: "a dict", "None", "torch.device(...)". `text` [bytes] is memory
 * for the result. */
const char *fsdp_pickle_describe(const fsdp_pickle_value *value, char *text, size_t bytes);
/* Return the first OPAQUE value in `value`, depth first, or NULL if there is none. */
const fsdp_pickle_value *fsdp_pickle_find_opaque(const fsdp_pickle_value *value);
/* Is `value` the NAME `name`, or a RECORD of calling it? */
bool fsdp_pickle_is_call(const fsdp_pickle_value *value, const char *name);
/* Return argument `i` of a RECORD or item `i` of a TUPLE or LIST, or NULL if there is none. */
const fsdp_pickle_value *fsdp_pickle_at(const fsdp_pickle_value *value, size_t i);
/* Return the value of the text key `key` in a DICT or in the state of a RECORD, or NULL. If several
 * keys are equal, the last one counts. O(n). */
const fsdp_pickle_value *fsdp_pickle_find(const fsdp_pickle_value *value, const char *key);
/* Return the text of a STR that contains no NUL character, or NULL for any other value. */
const char *fsdp_pickle_text(const fsdp_pickle_value *value);
