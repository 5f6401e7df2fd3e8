"""Where clients run. Every engine gives them encoded bytes and takes encoded bytes back."""
