/* The job secret, with which the launchers of a job recognize each other.
 *
 * It comes from the file that --job-secret-file names. Without this option, it comes from
 * $FSDP_JOB_SECRET. Without this variable, it comes from the file fsdp/job-secret in
 * $XDG_CONFIG_HOME (default: ~/.config), if the file exists. If there is no secret, the first
 * launcher makes one and prints the line that users type on the other hosts. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

#define FSDP_JOB_SECRET_ENV "FSDP_JOB_SECRET"

enum {
    FSDP_MAC_BYTES = 32,   /* HMAC-SHA256 */
    FSDP_SECRET_TEXT = 48, /* size of a buffer for the text that fsdp_job_secret_make() writes */
    FSDP_SECRET_LEAST = 16 /* least number of characters of a secret */
};

typedef struct fsdp_job_secret {
    uint8_t key[FSDP_MAC_BYTES]; /* derived from the text of the secret */
} fsdp_job_secret;

/* Read the secret. `path` is the value of --job-secret-file, or NULL. Set *found to false if there
 * is no secret. Remove $FSDP_JOB_SECRET from the environment, even if the secret comes from a file,
 * so that ranks do not get it.
 * @return FSDP_ERR_INVALID for a secret that is too short, or a file that others may read;
 * FSDP_ERR_NOT_FOUND if `path` does not exist; FSDP_ERR_UNSUPPORTED in a build without nettle */
FSDP_MUST_CHECK fsdp_status fsdp_job_secret_read(const char *path, fsdp_job_secret *secret,
                                                 bool *found);
/* Make a random secret, and write its text to `text`. */
FSDP_MUST_CHECK fsdp_status fsdp_job_secret_make(fsdp_job_secret *secret,
                                                 char text[FSDP_SECRET_TEXT]);
/* Derive the key from a text. */
FSDP_MUST_CHECK fsdp_status fsdp_job_secret_of_text(const char *text, fsdp_job_secret *secret);

/* Some of the bytes that are authenticated. */
typedef struct fsdp_mac_part {
    const void *bytes;
    size_t size;
} fsdp_mac_part;

/* Compute the HMAC-SHA256 of the parts, one after the other. Needs a build with nettle; in a build
 * without it, no caller has a secret. */
void fsdp_mac(const uint8_t key[FSDP_MAC_BYTES], const fsdp_mac_part *parts, size_t n_parts,
              uint8_t mac[FSDP_MAC_BYTES]);
/* Return true if two HMACs are equal. The time that this takes does not depend on their
 * contents. */
bool fsdp_mac_equal(const uint8_t *a, const uint8_t *b);
enum {
    FSDP_DIGEST_TEXT = 33 /* size of the text of a digest, with the NUL at its end */
};
/* Write the digest of a word under the secret to `digest`, as hexadecimal digits. Without the
 * secret, the word cannot be found by trying words against the digest. */
void fsdp_job_secret_digest(const fsdp_job_secret *secret, const char *word,
                            char digest[FSDP_DIGEST_TEXT]);
