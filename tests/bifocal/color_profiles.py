"""ICC profiles for tests."""

import struct

from PIL import ImageCms

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def swapped_profile() -> bytes:
    """Return a profile that exchanges red and blue."""
    profile = bytearray(SRGB)
    count = struct.unpack(">I", profile[128:132])[0]
    places = {bytes(profile[132 + 12 * i : 136 + 12 * i]): 136 + 12 * i for i in range(count)}
    red, blue = (slice(places[tag], places[tag] + 8) for tag in (b"rXYZ", b"bXYZ"))
    profile[red], profile[blue] = profile[blue], profile[red]
    return bytes(profile)
