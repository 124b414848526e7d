/* libsentencepiece (C++) behind a C interface. This header exposes none of the library's types, and
 * its functions throw no exception. */
#pragma once
#include <fsdp/text.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_sentencepiece fsdp_sentencepiece;

/* `model` is the content of the file, needed only during the call. If it is not a model, returns
 * FSDP_ERR_FORMAT with the library's own message. */
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_load(const void *model, size_t bytes,
                                                    fsdp_sentencepiece **out);
void fsdp_sentencepiece_destroy(fsdp_sentencepiece *sp); /* accepts NULL */

int32_t fsdp_sentencepiece_size(const fsdp_sentencepiece *sp);
/* These return -1 if the model has no such piece. */
int32_t fsdp_sentencepiece_bos_id(const fsdp_sentencepiece *sp);
int32_t fsdp_sentencepiece_pad_id(const fsdp_sentencepiece *sp);
int32_t fsdp_sentencepiece_eos_id(const fsdp_sentencepiece *sp);
int32_t fsdp_sentencepiece_unk_id(const fsdp_sentencepiece *sp);
/* Return a piece as a NUL-terminated string, which is valid as long as sp. Here and below, 0 <= id
 * < fsdp_sentencepiece_size(). */
const char *fsdp_sentencepiece_piece(const fsdp_sentencepiece *sp, int32_t id);
/* Return the logarithm of the piece's probability. */
float fsdp_sentencepiece_score(const fsdp_sentencepiece *sp, int32_t id);
/* Can the piece occur in text? Unknown, control, unused and byte pieces cannot. */
bool fsdp_sentencepiece_is_normal(const fsdp_sentencepiece *sp, int32_t id);

/* Return the byte of a byte piece, or -1 for another piece. A byte piece encodes one byte of text
 * that no other piece covers (byte fallback). */
int fsdp_sentencepiece_byte(const fsdp_sentencepiece *sp, int32_t id);

/* Call `each` for the pieces of `text`, in order. `text` must be well-formed UTF-8. `piece`
 * [length] is a part of the normalised text, in which spaces are U+2581. A byte piece has a name
 * such as "<0x0A>" instead. Stops at the first failure of `each` and returns it. Thread-safe. */
typedef fsdp_status fsdp_sentencepiece_fn(void *arg, const char *piece, size_t length, int32_t id);
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_encode(const fsdp_sentencepiece *sp,
                                                      const char *text, size_t length,
                                                      fsdp_sentencepiece_fn *each, void *arg);

#ifdef __cplusplus
}
#endif
