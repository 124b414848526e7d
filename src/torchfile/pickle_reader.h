/* Reads Python's pickles as data: the result is a tree of values. No module is imported, and no
 * function is called.
 *
 * A pickle is a program for a stack machine. It may name any function of any module and call it.
 * This reader knows only the names in the caller's list. A name outside the list becomes an OPAQUE
 * value, and so does the result of a call of this name. The OPAQUE value has the name, but not the
 * arguments. Most calls of known names become RECORDs. A RECORD has the function or class that was
 * called, the arguments, and the state that BUILD sets. Protocols 2 to 5 are read, with all opcodes
 * that PyTorch's files use.
 *
 * Note [Pickles that cannot hurt]. Every read is checked against the pickle's end. A value is held
 * if another value contains it, or if it has a second place on the stack. A held value can no
 * longer be changed, so no value can contain itself. The depth of each value is therefore known,
 * and is at most FSDP_PICKLE_MAX_DEPTH. Memory is bounded by a multiple of the pickle's size. Many
 * values may hold the same value, however, so walking all paths through a hostile tree could take
 * forever. Code that uses a tree therefore goes directly to the values that it needs. */
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
    FSDP_PICKLE_NAME, /* a class, function or constant that is in the caller's list */
    FSDP_PICKLE_RECORD,
    /* A name that is not in the caller's list, or the result of a call of such a name, such as a
     * NumPy number or a Path. fsdp_pickle_value.name is this name. */
    FSDP_PICKLE_OPAQUE,
    FSDP_PICKLE_PERSISTENT /* a reference to an object outside the pickle, such as a storage; its
                              only item is the persistent id */
} fsdp_pickle_kind;

/* What the reader makes of a call of a function or class that the pickle names. Each name in the
 * list passed to fsdp_pickle_create() has one of these meanings. */
typedef enum fsdp_pickle_meaning {
    FSDP_PICKLE_CONSTANT, /* makes nothing; a call of the name is an error */
    FSDP_PICKLE_CALL,     /* makes a RECORD of the call */
    FSDP_PICKLE_FIRST, /* makes its first argument; for example, torch.Size((2, 3)) makes (2, 3) */
    FSDP_PICKLE_MAKE_SET, /* makes a SET; the argument is a list of the SET's items; without an
                             argument, the SET is empty */
    FSDP_PICKLE_EMPTY,    /* makes an empty DICT; the call must have no arguments: OrderedDict() */
    FSDP_PICKLE_COUNT,    /* makes a DICT whose `counts` is true; the argument is a dict, as in
                             Counter({1: 2}) */
    FSDP_PICKLE_ENCODE, /* makes BYTES; the argument is a text with characters up to U+00FF; without
                           an argument, the BYTES are empty */
    FSDP_PICKLE_UNKNOWN, /* makes an OPAQUE value; names outside the list have this meaning */
    FSDP_PICKLE_TYPE,    /* like CONSTANT, but may be the argument `type` of a REBUILD call */
    /* The call must have four arguments: function, type, arguments and attributes. It makes a
     * RECORD of the call function(*arguments). The name `type` must have the meaning TYPE. */
    FSDP_PICKLE_REBUILD
} fsdp_pickle_meaning;

typedef struct fsdp_pickle_name {
    const char *module; /* NULL: any module; "a.*": any module below the package "a", because
                           PyTorch has moved some classes from one such module to another */
    const char *name;
    fsdp_pickle_meaning meaning;
} fsdp_pickle_name;

typedef struct fsdp_pickle_value fsdp_pickle_value;
struct fsdp_pickle_value {
    fsdp_pickle_kind kind;
    uint16_t depth; /* number of levels of values below this value */
    bool held; /* another value holds this value, or the stack holds it twice; a held value must not
                  change */
    bool counts; /* DICT: a collections.Counter */
    bool opaque; /* this value is OPAQUE, or contains an OPAQUE value at any depth */
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
    const struct fsdp_pickle_names *also; /* another list, searched after this one, or NULL */
} fsdp_pickle_names;

typedef struct fsdp_pickle fsdp_pickle;

/* Read the pickle at the start of `data` [bytes]. It ends with STOP; any bytes after that are
 * ignored. `label` is the prefix of messages. Returns FSDP_ERR_FORMAT if the pickle is malformed.
 * Returns FSDP_ERR_UNSUPPORTED if it has an unknown opcode, or a tensor with an attribute that is
 * not a plain value. The message contains the offset of the opcode. */
FSDP_MUST_CHECK fsdp_status fsdp_pickle_create(const char *label, const void *data, size_t bytes,
                                               const fsdp_pickle_names *names,
                                               fsdp_pickle **pickle);
void fsdp_pickle_destroy(fsdp_pickle *pickle); /* accepts NULL; frees all values */
/* Return the outermost value, which is valid until the pickle is destroyed. */
const fsdp_pickle_value *fsdp_pickle_root(const fsdp_pickle *pickle);

/* ---- values (all functions accept NULL, which has no kind) ---- */
bool fsdp_pickle_is(const fsdp_pickle_value *value, fsdp_pickle_kind kind);
/* Write a description of the value for messages into `text` [bytes], and return `text`. Examples:
 * "a dict", "None", "torch.device(...)". */
const char *fsdp_pickle_describe(const fsdp_pickle_value *value, char *text, size_t bytes);
/* Return the first OPAQUE value in the tree below `value`, or `value` itself if it is OPAQUE. The
 * search is depth first. Returns NULL if there is none. */
const fsdp_pickle_value *fsdp_pickle_find_opaque(const fsdp_pickle_value *value);
/* Return true if `value` is a NAME whose name is `name`, or a RECORD of a call of this name. */
bool fsdp_pickle_is_call(const fsdp_pickle_value *value, const char *name);
/* Return argument `i` of a RECORD, or item `i` of a TUPLE, LIST or PERSISTENT. Returns NULL if
 * there is none. */
const fsdp_pickle_value *fsdp_pickle_at(const fsdp_pickle_value *value, size_t i);
/* Return the value of the text key `key`, or NULL if there is none. `value` is a DICT, or a RECORD
 * whose state is a DICT. If the DICT has the key several times, the last one counts. Takes O(n)
 * time. */
const fsdp_pickle_value *fsdp_pickle_find(const fsdp_pickle_value *value, const char *key);
/* Return the text of `value`, or NULL if `value` is not a STR or contains a NUL character. */
const char *fsdp_pickle_text(const fsdp_pickle_value *value);
