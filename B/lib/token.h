/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Keys that a TPM2 or a tang server keeps.  The slot and its token in the LUKS2 header are those of systemd-cryptenroll and of clevis, which make them;
 * so cryptsetup, or clevis, opens the volume without larder.
 */
#ifndef LARDER_TOKEN_H
#define LARDER_TOKEN_H

#include <stdbool.h>

#include "luks.h"

#define TOKEN_TEXT_MAX 256 /* of a key as words have it, with the final zero */
#define TOKEN_GRAMMAR  "tpm2[,pcrs=N+N...] or tang=URL[,thp=THUMBPRINT]"

enum token_kind {
	TOKEN_TPM2,
	TOKEN_TANG,
};

struct token {
	enum token_kind kind;
	char pcrs[64]; /* of the TPM2: "7+11"; "": as systemd-cryptenroll has it, PCR 7 */
	char url[TOKEN_TEXT_MAX], thumbprint[64]; /* of the tang server, and of the key by which its advertisement is signed; thumbprint "": not known yet */
};

/* NULL: done; else what is wrong with the words. */
const char *token_parse(const char *text, struct token *token);
/* The words again, of a thumbprint that has been found as well; at most TOKEN_TEXT_MAX - 1 bytes, or "" where they do not fit. */
void token_text(const struct token *token, char text[static TOKEN_TEXT_MAX]);
/*
 * What it takes is here: the programs, one TPM2, or the server, which is asked for its advertisement; of one without a thumbprint that is filled in,
 * and whoever asked for it is to say whether he trusts it; refused where he has not said so (trusted), and there is nobody to be asked.  Touches
 * nothing.  Complains.
 */
int token_check(struct token *token, bool trusted);
/* For whoever is asked: "the TPM2 of this machine", "the tang server URL (thumbprint ...)"; the caller frees it. */
char *token_describe(const struct token *token);
/*
 * Gives the header on this device a further key; old: one that opens it, which goes to the program by a file that has no name.  *slot: where it is.
 * Complains.
 */
int token_enrol(const struct token *token, const char *device, const struct secret *old, int *slot);

/* ------------------------------------------------------------------ clevis' token, as the header has it: JSON */

/* What the key is kept by: "tang", "tpm2", "sss"; "": cannot be understood. */
void token_pin(const char *json, char pin[static 16]);
/* Asks clevis for the key: some seconds at most.  False: it cannot be had now; clevis has said why on stderr.  secret_free() after success. */
bool token_decrypt(const char *json, struct secret *secret);

#endif
