/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A context of libcryptsetup, and what it says of an error: for luks.c, integrity.c and crypt_layer.c, the only files that know it. */
#ifndef LARDER_CRYPTSETUP_H
#define LARDER_CRYPTSETUP_H

struct crypt_device;

/* Its errors are kept from now on, for cryptsetup_judge(), and not printed. */
void cryptsetup_listen(void);
/* 0 or -errno; says nothing.  crypt_free(*cd) after it, also after an error, where *cd was NULL. */
int cryptsetup_open(const char *device, struct crypt_device **cd);
/* Its last error since it was listened to; "": it said none. */
const char *cryptsetup_said(void);
/* The same, or else what that number means. */
const char *cryptsetup_words(int error);
/* An exit code of what libcryptsetup returned.  Complains of an error: "cannot ACTION it". */
int cryptsetup_judge(int error, const char *device, const char *action);

#endif
