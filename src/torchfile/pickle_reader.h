/* Python's pickles as data: a tree of values. Nothing is imported and nothing is run.
 *
 * A pickle is a program for a stack machine that may name any function of any module and call it.
 * Here names of the caller's list have a meaning. Every other name, and whatever is made by calling
 * it, is an opaque value: its name is known, what it was made of is passed over. Calls without a
 * meaning of their own become records: what was called, its arguments, its state. Protocols 2 to 5,
 * all opcodes that PyTorch's files use.
 *
 * Note [Pickles that cannot hurt]
 * Every read is checked against the pickle's end. A value can be changed only until something holds
 * it (another value, or a second place on the stack), so no value can hold itself, and the depth of
 * each is known: at most FSDP_PICKLE_MAX_DEPTH. Memory is bounded by a multiple of the pickle's
 * size. A value may be held from many places, though: a program that walks all paths through a
 * hostile tree may never end, so readers go to what they look for. */
#pragma once
#include <fsdp/base.h>

enum {
    FSDP_PICKLE_MAX_DEPTH = 100
};

typedef enum fsdp_pickle_kind {
    FSDP_PICKLE_NONE,
    FSDP_PICKLE_BOOL,
    FSDP_PICKLE_INT,
    FSDP_PICKLE_BIG_INT, /* beyond 64 bits */
    FSDP_PICKLE_FLOAT,
    FSDP_PICKLE_STR,
    FSDP_PICKLE_BYTES,
    FSDP_PICKLE_TUPLE,
    FSDP_PICKLE_LIST,
    FSDP_PICKLE_SET,  /* in the order of the pickle, which means nothing */
    FSDP_PICKLE_DICT, /* OrderedDict too */
    FSDP_PICKLE_NAME, /* a class, function or constant */
    FSDP_PICKLE_RECORD,
    FSDP_PICKLE_OPAQUE, /* of a class or function that is not in the list: a NumPy number, a Path, a
                           Namespace; `name` says of which */
    FSDP_PICKLE_PERSISTENT /* a persistent id: items is the one value that it was given */
} fsdp_pickle_kind;

/* What a name of the caller's list means when it is called. */
typedef enum fsdp_pickle_meaning {
    FSDP_PICKLE_CONSTANT, /* it may not be called */
    FSDP_PICKLE_CALL,     /* a RECORD */
    FSDP_PICKLE_FIRST,    /* the call's first argument: torch.Size((2, 3)) is (2, 3) */
    FSDP_PICKLE_MAKE_SET, /* of the items of a list; without arguments none */
    FSDP_PICKLE_EMPTY,    /* without arguments an empty dict: OrderedDict() */
    FSDP_PICKLE_COUNT,    /* of a dict one that counts: Counter({1: 2}) */
    FSDP_PICKLE_ENCODE,   /* bytes, from text of characters up to U+00FF; without arguments none */
    FSDP_PICKLE_UNKNOWN,  /* of a name that is not in the list: what it makes is OPAQUE */
    FSDP_PICKLE_TYPE,     /* as CONSTANT; what REBUILD may make */
    FSDP_PICKLE_REBUILD   /* of (function, TYPE, arguments, attributes) the call of the function */
} fsdp_pickle_meaning;

typedef struct fsdp_pickle_name {
    const char *module; /* NULL: any, "a.*": any below a, for classes that moved */
    const char *name;
    fsdp_pickle_meaning meaning;
} fsdp_pickle_name;

typedef struct fsdp_pickle_value fsdp_pickle_value;
struct fsdp_pickle_value {
    fsdp_pickle_kind kind;
    uint16_t depth; /* of the values below */
    bool held;      /* by another value; it does not change any more */
    bool counts;    /* DICT: it is a collections.Counter */
    bool opaque;    /* it is OPAQUE, or holds what is */
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
            fsdp_pickle_value *state; /* what BUILD gave, usually a DICT; NULL if nothing */
        } record;
    };
};

/* A list of names, each with its meaning. */
typedef struct fsdp_pickle_names {
    const fsdp_pickle_name *items; /* [n] static */
    size_t n;
    const struct fsdp_pickle_names *also; /* looked into after these; NULL: nothing */
} fsdp_pickle_names;

typedef struct fsdp_pickle fsdp_pickle;

/* Read the first value of `data` [bytes]. `label` begins the messages. FSDP_ERR_FORMAT naming the
 * byte if the pickle is malformed; FSDP_ERR_UNSUPPORTED for opcodes of other protocols. */
FSDP_MUST_CHECK fsdp_status fsdp_pickle_create(const char *label, const void *data, size_t bytes,
                                               const fsdp_pickle_names *names,
                                               fsdp_pickle **pickle);
void fsdp_pickle_destroy(fsdp_pickle *pickle); /* accepts NULL; all values are gone */
/* Valid as long as the pickle is. */
const fsdp_pickle_value *fsdp_pickle_root(const fsdp_pickle *pickle);

/* ---- values; all accept NULL as a value of no kind ---- */
bool fsdp_pickle_is(const fsdp_pickle_value *value, fsdp_pickle_kind kind);
/* "a dict", "None", "torch.device(...)": for messages. */
const char *fsdp_pickle_describe(const fsdp_pickle_value *value, char *text, size_t bytes);
/* The first OPAQUE value in `value`, depth first; NULL if there is none. */
const fsdp_pickle_value *fsdp_pickle_find_opaque(const fsdp_pickle_value *value);
/* Is `value` a RECORD of calling `name`, or the NAME itself? */
bool fsdp_pickle_is_call(const fsdp_pickle_value *value, const char *name);
/* Argument `i` of a RECORD, item `i` of a TUPLE or LIST; NULL if there is none. */
const fsdp_pickle_value *fsdp_pickle_at(const fsdp_pickle_value *value, size_t i);
/* The value of text key `key` in a DICT or a RECORD's state: the last, if there are several; NULL
 * if there is none. O(n). */
const fsdp_pickle_value *fsdp_pickle_find(const fsdp_pickle_value *value, const char *key);
/* Text without a NUL in it; NULL for everything else. */
const char *fsdp_pickle_text(const fsdp_pickle_value *value);
