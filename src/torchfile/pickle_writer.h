/* Writes a pickle (protocol 2, which torch.load's weights_only unpickler reads) value by value. A
 * container is begun before its items are written. Initialize a writer with {0}. Functions without
 * a status cannot fail: if memory runs out, `text` records this, as in str.h, and take() reports
 * it. */
#pragma once
#include "src/base/str.h"
#include "src/torchfile/pickle_reader.h"

enum {
    FSDP_PICKLE_MAX_GLOBALS = 64 /* limit of distinct classes and functions; each is written once,
                                    then referenced by number */
};

typedef struct fsdp_pickle_writer {
    fsdp_str text;                                /* the pickle so far, without PROTO and STOP */
    fsdp_pickle_kind open[FSDP_PICKLE_MAX_DEPTH]; /* [depth] kinds of the open containers */
    int depth;
    struct {
        const char *module, *name; /* static */
    } globals[FSDP_PICKLE_MAX_GLOBALS];
    int n_globals;
} fsdp_pickle_writer;

void fsdp_pickle_put_none(fsdp_pickle_writer *w);
void fsdp_pickle_put_bool(fsdp_pickle_writer *w, bool value);
void fsdp_pickle_put_int(fsdp_pickle_writer *w, int64_t value);
void fsdp_pickle_put_float(fsdp_pickle_writer *w, double value);
void fsdp_pickle_put_str(fsdp_pickle_writer *w, const char *utf8);
/* Put a bytes object. Protocol 2 has no bytes objects, so this writes a call that makes one. */
void fsdp_pickle_put_bytes(fsdp_pickle_writer *w, const void *data, size_t bytes);
/* Begin a DICT, LIST, SET or TUPLE. All values until the matching end() are its items. In a DICT,
 * keys and values alternate. */
void fsdp_pickle_begin(fsdp_pickle_writer *w, fsdp_pickle_kind kind);
void fsdp_pickle_end(fsdp_pickle_writer *w);
/* Put a tuple of `n` ints. */
void fsdp_pickle_put_ints(fsdp_pickle_writer *w, const int64_t *values, int n);
/* Put a class or function. Both strings must have static storage. */
void fsdp_pickle_put_global(fsdp_pickle_writer *w, const char *module, const char *name);
/* Turn the last two values, a function and the tuple of its arguments, into a call. */
void fsdp_pickle_call(fsdp_pickle_writer *w);
/* Put a new object of a class, without a state. Both strings must have static storage. */
void fsdp_pickle_put_object(fsdp_pickle_writer *w, const char *module, const char *name);
/* Make the last value the state of the object before it. */
void fsdp_pickle_build(fsdp_pickle_writer *w);
/* Put a complete value from the `text` of another writer. `w` must be empty, because both writers
 * number their globals from 0. */
void fsdp_pickle_put_written(fsdp_pickle_writer *w, const fsdp_str *text);
/* Put a value that was read from another pickle. FSDP_ERR_UNSUPPORTED for objects, names,
 * persistent ids and ints of more than 255 bytes; FSDP_ERR_INVALID if the value is nested too
 * deeply, or is longer than 1 GiB. A value that several others hold is written several times. After
 * an error, `w` can only be passed to fini(). */
FSDP_MUST_CHECK fsdp_status fsdp_pickle_put_value(fsdp_pickle_writer *w,
                                                  const fsdp_pickle_value *value);
/* Turn the last value into a persistent id. */
void fsdp_pickle_persistent(fsdp_pickle_writer *w);
/* Return the complete pickle [*bytes], which the caller owns, and empty `w`. Returns NULL with an
 * error if memory ran out. */
char *fsdp_pickle_take(fsdp_pickle_writer *w, size_t *bytes);
void fsdp_pickle_fini(fsdp_pickle_writer *w);
