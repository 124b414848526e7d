/* Writes a pickle, one value after the other, in protocol 2, which torch.load(weights_only=True)
 * can read. Initialize a writer with {0}. A container begins with begin(), which is followed by its
 * items and end(). If memory runs out, functions without a status do not report it; take() reports
 * it later. */
#pragma once
#include "src/base/str.h"
#include "src/torchfile/pickle_reader.h"

enum {
    FSDP_PICKLE_MAX_GLOBALS = 64 /* limit of the number of different classes and functions. Each one
                                    is written once. Later uses refer to it by its number */
};

typedef struct fsdp_pickle_writer {
    fsdp_str text; /* the opcodes so far, without PROTO and STOP */
    /* [depth] kinds of the containers that are open, the outermost first. A value may be nested
     * FSDP_PICKLE_MAX_DEPTH times, and its innermost value may open one more: an empty container,
     * or the arguments of the call that makes a bytes object. */
    fsdp_pickle_kind open[FSDP_PICKLE_MAX_DEPTH + 1];
    int depth;
    struct {
        const char *module, *name; /* static */
    } globals[FSDP_PICKLE_MAX_GLOBALS];
    int n_globals;
    /* Hash table of the texts that were passed to fsdp_pickle_put_shared_str(). It has shared_cap
     * slots, a power of two. In a free slot, `text` is NULL. */
    struct fsdp_pickle_shared {
        const char *text; /* borrowed */
        uint32_t number;
    } * shared;
    size_t n_shared, shared_cap;
} fsdp_pickle_writer;

void fsdp_pickle_put_none(fsdp_pickle_writer *w);
void fsdp_pickle_put_bool(fsdp_pickle_writer *w, bool value);
void fsdp_pickle_put_int(fsdp_pickle_writer *w, int64_t value);
void fsdp_pickle_put_float(fsdp_pickle_writer *w, double value);
void fsdp_pickle_put_str(fsdp_pickle_writer *w, const char *utf8);
/* Put a text that is put many times. The second time, and later, only a reference to it is written.
 * `utf8` is borrowed until take() or fini(). */
void fsdp_pickle_put_shared_str(fsdp_pickle_writer *w, const char *utf8);
/* Put a bytes object. Protocol 2 has no bytes objects, so this writes a call that makes one. */
void fsdp_pickle_put_bytes(fsdp_pickle_writer *w, const void *data, size_t bytes);
/* Begin a DICT, LIST, SET or TUPLE. All values that are put before the matching end() are its
 * items. In a DICT, keys and values alternate. */
void fsdp_pickle_begin(fsdp_pickle_writer *w, fsdp_pickle_kind kind);
void fsdp_pickle_end(fsdp_pickle_writer *w);
/* Put a tuple of `n` ints. */
void fsdp_pickle_put_ints(fsdp_pickle_writer *w, const int64_t *values, int n);
/* Put a reference to a class or function. Both strings must have static storage. */
void fsdp_pickle_put_global(fsdp_pickle_writer *w, const char *module, const char *name);
/* Replace the last two values, a function and the tuple of its arguments, by a call. */
void fsdp_pickle_call(fsdp_pickle_writer *w);
/* Put a new object of a class, without a state. Both strings must have static storage. */
void fsdp_pickle_put_object(fsdp_pickle_writer *w, const char *module, const char *name);
/* Make the last value the state of the object that was put just before it. */
void fsdp_pickle_build(fsdp_pickle_writer *w);
/* Put a value that another writer has written. The argument `text` is the member `text` of the
 * other writer. `w` must be empty: every writer numbers its classes and functions from 0, so the
 * numbers in `text` would be wrong if `w` already had classes or functions. */
void fsdp_pickle_put_written(fsdp_pickle_writer *w, const fsdp_str *text);
/* Put a copy of a value that was read from another pickle. A value that is contained in several
 * others is written several times. Returns FSDP_ERR_UNSUPPORTED if the value is or contains an
 * object, a name, a persistent id, or an int of more than 255 bytes. Returns FSDP_ERR_INVALID if it
 * is nested too deeply, or if the pickle becomes longer than 1 GiB. After an error, `w` can only be
 * passed to fini(). */
FSDP_MUST_CHECK fsdp_status fsdp_pickle_put_value(fsdp_pickle_writer *w,
                                                  const fsdp_pickle_value *value);
/* Turn the last value into a persistent id (opcode BINPERSID). */
void fsdp_pickle_persistent(fsdp_pickle_writer *w);
/* Return the complete pickle, set *bytes to its size, and empty `w`. The caller owns the result. If
 * memory ran out, set the error message and return NULL. */
char *fsdp_pickle_take(fsdp_pickle_writer *w, size_t *bytes);
void fsdp_pickle_fini(fsdp_pickle_writer *w);
