/* ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004), number for number as Google's rouge_score package
 * computes them with use_stemmer=False: text is lower-cased, every run of characters other than
 * a-z and 0-9 separates tokens, ROUGE-L is the longest common subsequence of the whole texts.
 * Porter stemming (use_stemmer=True) and rougeLsum are not offered. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

/* Each in [0, 1]. */
typedef struct fsdp_rouge_score {
    double precision; /* matches / length of the prediction */
    double recall;    /* matches / length of the reference */
    double fmeasure;  /* harmonic mean; 0 where nothing matches */
} fsdp_rouge_score;

typedef struct fsdp_rouge {
    fsdp_rouge_score rouge1, rouge2, rougeL;
} fsdp_rouge;

/* One pair of UTF-8 texts. Texts without a token score 0. */
FSDP_MUST_CHECK fsdp_status fsdp_rouge_pair(const char *reference, const char *prediction,
                                            fsdp_rouge *rouge);

/* Means over n pairs; FSDP_ERR_INVALID if n is 0. */
FSDP_MUST_CHECK fsdp_status fsdp_rouge_mean(const char *const *references,
                                            const char *const *predictions, size_t n,
                                            fsdp_rouge *rouge);

/* The one sentence that, predicted for every reference, has the highest mean ROUGE-L F-measure:
 * what a model scores that has learnt the form of the summaries and nothing of the articles.
 * Time is references x candidates x length: 200 x 3,000 short summaries take some 20 ms.
 *
 * candidates: sentences to choose among, usually the training summaries
 * best      : out, its index; the first one if several are equal
 * rouge     : out, its means over the references; may be NULL
 * FSDP_ERR_INVALID if either list is empty. */
FSDP_MUST_CHECK fsdp_status fsdp_rouge_best_constant(const char *const *references,
                                                     size_t n_references,
                                                     const char *const *candidates,
                                                     size_t n_candidates, size_t *best,
                                                     fsdp_rouge *rouge);
