/* C functions that call libsentencepiece, a C++ library. They use none of its types and throw no
 * exception. */
#pragma once
#include <fsdp/text.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_sentencepiece fsdp_sentencepiece;

/* Load a model from the content of its file. `model` is needed only during the call. If it is not a
 * SentencePiece model, return FSDP_ERR_FORMAT with the library's message. */
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_load(const void *model, size_t bytes,
                                                    fsdp_sentencepiece **out);
void fsdp_sentencepiece_destroy(fsdp_sentencepiece *sp); /* accepts NULL */

int32_t fsdp_sentencepiece_size(const fsdp_sentencepiece *sp);
/* The next four functions return the id of <s>, <pad>, </s> or <unk>. They return -1 if the model
 * does not have this piece. */
int32_t fsdp_sentencepiece_bos_id(const fsdp_sentencepiece *sp);
int32_t fsdp_sentencepiece_pad_id(const fsdp_sentencepiece *sp);
int32_t fsdp_sentencepiece_eos_id(const fsdp_sentencepiece *sp);
int32_t fsdp_sentencepiece_unk_id(const fsdp_sentencepiece *sp);
/* Return the text of a piece, NUL-terminated. `sp` owns the text. Here and below, 0 <= id <
 * fsdp_sentencepiece_size(). */
const char *fsdp_sentencepiece_piece(const fsdp_sentencepiece *sp, int32_t id);
/* Return the logarithm of the piece's probability. */
float fsdp_sentencepiece_score(const fsdp_sentencepiece *sp, int32_t id);
/* Return true if the piece is ordinary text, that is, not an unknown, control, unused or byte
 * piece. */
bool fsdp_sentencepiece_is_normal(const fsdp_sentencepiece *sp, int32_t id);

/* Return the byte of a byte piece, or -1 if the piece is of another kind. Byte pieces represent the
 * bytes of characters that no other piece contains (byte fallback). */
int fsdp_sentencepiece_byte(const fsdp_sentencepiece *sp, int32_t id);

/* Split `text` into pieces and call `each` for every piece, in order. `text` must be well-formed
 * UTF-8. `each` gets the piece as `piece` [length]. For a byte piece, this is the name of the
 * piece, such as "<0x0A>". For every other piece, it is a part of the normalised text, in which
 * spaces are U+2581. If `each` fails, stop and return the error of `each`. Thread-safe. */
typedef fsdp_status fsdp_sentencepiece_fn(void *arg, const char *piece, size_t length, int32_t id);
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_encode(const fsdp_sentencepiece *sp,
                                                      const char *text, size_t length,
                                                      fsdp_sentencepiece_fn *each, void *arg);

#ifdef __cplusplus
}
#endif
